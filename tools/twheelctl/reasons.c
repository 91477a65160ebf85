// SPDX-License-Identifier: GPL-2.0
/* Why there is no device: the module, and what keeps a kernel from loading it */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"

#define LOG_LINES	3
#define RECORD_MAX	16384
#define DEPTH_MAX	8
#define SIGNED		"~Module signature appended~\n"

#define SECURE_BOOT	"SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
#define BUILD	"in the source: make && sudo make install"

bool first_line(const char *path, char *line, size_t size)
{
	FILE *in = fopen(path, "re");
	bool ok;

	if (!in)
		return false;
	ok = fgets(line, (int)size, in);
	fclose(in);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

static bool exists(const char *path)
{
	return !access(path, F_OK);
}

bool is_container(const struct doctor *d)
{
	return exists(in_root(d, "/.dockerenv")) || exists(in_root(d, "/run/.containerenv")) ||
	       exists(in_root(d, "/run/systemd/container"));
}

/* twheel.ko, perhaps compressed */
static bool is_module(const char *name)
{
	static const char * const names[] = {
		"twheel.ko", "twheel.ko.xz", "twheel.ko.zst", "twheel.ko.gz",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Looks below @path, which becomes that of the module if true is returned */
/* NOLINTNEXTLINE(misc-no-recursion): no deeper than DEPTH_MAX */
static bool find_module(char path[static PATH_MAX], int depth)
{
	size_t len = strlen(path);
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	if (depth > DEPTH_MAX)
		return false;
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "build") ||
		    !strcmp(entry->d_name, "source"))
			continue;
		snprintf(path + len, PATH_MAX - len, "/%s", entry->d_name);
		found = is_module(entry->d_name) ||
			(entry->d_type == DT_DIR && find_module(path, depth + 1));
	}
	closedir(dir);
	if (!found)
		path[len] = '\0';
	return found;
}

/* Names other kernels that do have it */
static void find_other_kernels(struct doctor *d)
{
	const char *modules = in_root(d, "/lib/modules");
	char path[PATH_MAX], others[256] = "";
	struct dirent *entry;
	size_t len = 0;
	DIR *dir = opendir(modules);

	if (!dir)
		return;
	while ((entry = readdir(dir)) && len < sizeof(others)) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, d->release))
			continue;
		snprintf(path, sizeof(path), "%s/%s", in_root(d, "/lib/modules"),
			 entry->d_name);
		if (find_module(path, 0))
			len += snprintf(others + len, sizeof(others) - len, " %s",
					entry->d_name);
	}
	closedir(dir);
	if (len)
		tell(d, NOTE, "reboot into one of them, or " BUILD " for the one that runs",
		     "the module is installed for other kernels:%s", others);
}

/* The module is nowhere for this kernel */
static void tell_not_installed(struct doctor *d)
{
	if (!exists(in_root(d, "/lib/modules/%s", d->release))) {
		tell(d, PROBLEM, is_container(d) ?
		     "load the module on the host: sudo modprobe twheel" :
		     "reboot, as that kernel seems to be removed; then build the module for the new one",
		     "there are no modules of this kernel in /lib/modules/%s", d->release);
		return;
	}
	tell(d, PROBLEM, exists(in_root(d, "/lib/modules/%s/build", d->release)) ?
	     BUILD : "install its headers (linux-headers-$(uname -r) on Debian), then " BUILD,
	     "the module is not installed for this kernel");
	if (exists(in_root(d, "/var/lib/dkms/twheel")))
		tell(d, NOTE, "sudo dkms autoinstall; its log is in /var/lib/dkms/twheel",
		     "DKMS has the source of the module, but has not built it for this kernel");
}

static bool is_listed(const struct doctor *d, const char *path)
{
	const char *name = strrchr(path, '/');
	char line[1024];
	bool found = false;
	FILE *in = fopen(in_root(d, "/lib/modules/%s/modules.dep", d->release), "re");

	if (!in)
		return false;
	while (!found && fgets(line, sizeof(line), in)) {
		line[strcspn(line, ":")] = '\0';
		found = strstr(line, name) || !strcmp(line, name + 1);
	}
	fclose(in);
	return found;
}

static bool is_signed(const char *path)
{
	char end[sizeof(SIGNED)] = "";
	FILE *in = fopen(path, "re");
	bool ok;

	if (!in)
		return false;
	ok = !fseek(in, 1 - (long)sizeof(SIGNED), SEEK_END) &&
	     fread(end, 1, sizeof(SIGNED) - 1, in) == sizeof(SIGNED) - 1;
	fclose(in);
	return ok && !strcmp(end, SIGNED);
}

static bool secure_boot(const struct doctor *d)
{
	unsigned char val[5] = { 0 };
	FILE *in = fopen(in_root(d, "/sys/firmware/efi/efivars/" SECURE_BOOT), "re");

	if (!in)
		return false;
	if (fread(val, 1, sizeof(val), in) != sizeof(val))
		val[4] = 0;
	fclose(in);
	return val[4] == 1;
}

static void examine_signature(struct doctor *d, const char *path)
{
	char line[128] = "";
	bool locked, enforced, packed = strcmp(path + strlen(path) - 3, ".ko");

	locked = first_line(in_root(d, "/sys/kernel/security/lockdown"), line, sizeof(line)) &&
		 !strstr(line, "[none]");
	enforced = first_line(in_root(d, "/sys/module/module/parameters/sig_enforce"), line,
			      sizeof(line)) && *line == 'Y';
	if (!locked && !enforced)
		return;
	if (packed || is_signed(path)) {
		tell(d, NOTE,
		     "enrol the key that it is signed with: sudo mokutil --import CERTIFICATE, then reboot",
		     "this kernel loads only signed modules%s, and has to know the key",
		     secure_boot(d) ? " (Secure Boot is on)" : "");
		return;
	}
	tell(d, PROBLEM,
	     "sign it with the kernel's scripts/sign-file and a key that mokutil --import has enrolled (DKMS does so), or switch Secure Boot off",
	     "this kernel loads only signed modules%s, and twheel.ko is not signed",
	     secure_boot(d) ? " (Secure Boot is on)" : locked ? " (it is locked down)" : "");
}

/* A line of modprobe.d that keeps the module out */
static bool is_barred_by(const char *path, char line[static 256])
{
	FILE *in = fopen(path, "re");
	char word[2][32];
	bool found = false;

	if (!in)
		return false;
	while (!found && fgets(line, 256, in))
		found = sscanf(line, " %31s %31s", word[0], word[1]) == 2 &&
			!strcmp(word[1], "twheel") &&
			(!strcmp(word[0], "blacklist") ||
			 (!strcmp(word[0], "install") &&
			  (strstr(line, "/true") || strstr(line, "/false"))));
	fclose(in);
	line[strcspn(line, "\n")] = '\0';
	return found;
}

static void examine_modprobe(struct doctor *d)
{
	static const char * const dirs[] = {
		"/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d",
	};
	char path[PATH_MAX], line[256];
	struct dirent *entry;
	size_t i;
	DIR *dir;

	for (i = 0; i < ARRAY_SIZE(dirs); i++) {
		dir = opendir(in_root(d, "%s", dirs[i]));
		while (dir && (entry = readdir(dir))) {
			snprintf(path, sizeof(path), "%s/%s", in_root(d, "%s", dirs[i]),
				 entry->d_name);
			if (is_barred_by(path, line))
				tell(d, PROBLEM, "remove that line, or load it by insmod",
				     "modprobe is configured not to load it: \"%s\" in %s/%s",
				     line, dirs[i], entry->d_name);
		}
		if (dir)
			closedir(dir);
	}
}

/* What to do about a line of the kernel's log; NULL if it is no reason */
static const char *log_advice(const char *line)
{
	static const char rebuild[] =
		"it was built for another kernel: make clean, then " BUILD;
	static const char enrol[] =
		"enrol the key that it is signed with: mokutil --import";
	static const char parameters[] =
		"correct its parameters, in /etc/modprobe.d or on the kernel's command line";
	static const struct {
		const char *text;
		const char *advice;
	} reasons[] = {
		{ "version magic", rebuild },
		{ "disagrees about version of symbol", rebuild },
		{ "Unknown symbol", rebuild },
		{ "unsigned module", "sign it with a key that mokutil --import has enrolled" },
		{ "Key was rejected", enrol },
		{ "with unavailable key", enrol },
		{ "capacity_max", parameters },
		{ "invalid for parameter", parameters },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(reasons); i++)
		if (strstr(line, reasons[i].text))
			return reasons[i].advice;
	return NULL;
}

static bool is_of_module(const char *line)
{
	return strstr(line, "twheel") || strstr(line, "unsigned module");
}

/* The last lines that tell a reason. /dev/kmsg gives one record for each read() */
static void examine_log(struct doctor *d)
{
	char last[LOG_LINES][256], *line = NULL, *text;
	int fd = open(in_root(d, "/dev/kmsg"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	size_t size = 0, nr = 0, i;

	if (!in) {
		if (errno == EACCES || errno == EPERM)
			tell(d, NOTE,
			     "sudo twheelctl doctor",
			     "you may not read the kernel's log");
		return;
	}
	setvbuf(in, NULL, _IOFBF, RECORD_MAX);
	for (;;) {
		errno = 0;
		if (getline(&line, &size, in) < 0) {
			if (errno != EPIPE)
				break;
			clearerr(in);	/* older records have gone while we read */
			continue;
		}
		text = strchr(line, ';');
		text = text ? text + 1 : line;
		text[strcspn(text, "\n")] = '\0';
		if (!is_of_module(text) || !log_advice(text))
			continue;
		snprintf(last[nr++ % LOG_LINES], sizeof(last[0]), "%s", text);
	}
	free(line);
	fclose(in);
	for (i = nr > LOG_LINES ? nr - LOG_LINES : 0; i < nr; i++)
		tell(d, PROBLEM, log_advice(last[i % LOG_LINES]), "the kernel's log has: %s",
		     last[i % LOG_LINES]);
}

/* It is loaded, and still there is no device */
static void tell_no_node(struct doctor *d)
{
	char dev[32] = "";

	first_line(in_root(d, "/sys/class/twheel/twheel/dev"), dev, sizeof(dev));
	tell(d, FINE, NULL, "the module is loaded");
	if (is_container(d))
		tell(d, PROBLEM,
		     "start the container with the device: docker run --device /dev/twheel, or DeviceAllow= and a bind mount",
		     "this container was not given the device");
	else
		tell(d, PROBLEM,
		     "mount devtmpfs on /dev, or have udev make it: sudo udevadm trigger",
		     "the module has a device (%s), but /dev has no node for it", *dev ? dev : "?");
}

void examine_module(struct doctor *d)
{
	char path[PATH_MAX], line[64];

	if (exists(in_root(d, "/sys/module/twheel"))) {
		tell_no_node(d);
		return;
	}
	tell(d, PROBLEM, NULL, "the module is not loaded");
	snprintf(path, sizeof(path), "%s", in_root(d, "/lib/modules/%s", d->release));
	if (!find_module(path, 0)) {
		tell_not_installed(d);
		find_other_kernels(d);
		return;
	}
	tell(d, FINE, NULL, "the module is installed: %s", path + strlen(d->opt->root));
	if (!is_listed(d, path))
		tell(d, PROBLEM, "sudo depmod -a", "modprobe does not know the module yet");
	examine_modprobe(d);
	if (first_line(in_root(d, "/proc/sys/kernel/modules_disabled"), line, sizeof(line)) &&
	    *line == '1')
		tell(d, PROBLEM, "reboot, and load it before kernel.modules_disabled is set",
		     "this kernel loads no modules any more");
	examine_signature(d, path);
	examine_log(d);
	tell(d, NOTE,
	     "sudo modprobe twheel; at each boot: echo twheel | sudo tee /etc/modules-load.d/twheel.conf",
	     "then the module has to be loaded");
}

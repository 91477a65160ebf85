// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "commands.h"
#include "doctor.h"
#include "report.h"
#include "wheels.h"

/* Beyond this share of a limit it is time to say so */
#define NEAR_PERCENT	90
#define FIRE_MS		5000

void tell(struct doctor *d, enum finding kind, const char *advice, const char *format, ...)
{
	static const char * const names[] = { "ok", "note", "warning", "problem" };
	char text[PATH_MAX + 256], *p;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* names of files, and what programs put into the log, may be anything */
	for (p = text; check_label(text) && *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	if (kind > d->worst)
		d->worst = kind;
	if (!d->opt->json) {
		printf("%-8s %s\n", names[kind], text);
		if (advice)
			printf("         -> %s\n", advice);
		return;
	}
	printf("{\"type\":\"%s\",\"text\":", names[kind]);
	print_json_string(text);
	fputs(",\"advice\":", stdout);
	if (advice)
		print_json_string(advice);
	else
		fputs("null", stdout);
	puts("}");
}

const char *in_root(const struct doctor *d, const char *format, ...)
{
	static char path[PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s", d->opt->root);
	va_list args;

	if (len >= PATH_MAX)
		return "";
	va_start(args, format);
	vsnprintf(path + len, sizeof(path) - len, format, args);
	va_end(args);
	return path;
}

/* Bytes that wheels of this user hold, as far as they may be seen */
static __u64 memory_held(struct doctor *d)
{
	struct wheels all;
	__u64 sum = 0;
	size_t i;

	if (find_wheels(in_root(d, "/proc"), d->opt->device, &all))
		return 0;
	for (i = 0; i < all.nr; i++)
		if (all.v[i].uid == getuid())
			sum += all.v[i].memory;
	free_wheels(&all);
	return sum;
}

static __u64 memory_max(const struct doctor *d)
{
	char line[32];

	if (!first_line(in_root(d, "/sys/module/twheel/parameters/user_memory_max"), line,
			sizeof(line)))
		return 0;
	return strtoull(line, NULL, 10);
}

/* Returns whether that is why nothing more is to be had */
static bool examine_memory(struct doctor *d, bool refused)
{
	__u64 held = memory_held(d), max = memory_max(d);
	enum finding kind = FINE;

	if (!max)
		return false;
	if (held / NEAR_PERCENT >= max / 100)
		kind = refused ? PROBLEM : WARNING;
	if (kind == FINE && refused)
		return false;
	tell(d, kind, kind == FINE ? NULL :
	     "close wheels that are not needed (twheelctl top --sort memory), or as root raise /sys/module/twheel/parameters/user_memory_max",
	     "your wheels hold %llu of %llu bytes that user_memory_max allows", held, max);
	return kind != FINE;
}

static void examine_descriptors(struct doctor *d)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim))
		return;
	tell(d, lim.rlim_cur < 64 ? WARNING : FINE, lim.rlim_cur < 64 ?
	     "ulimit -n 1024, or LimitNOFILE= of the service" : NULL,
	     "a process may have %llu descriptors, each wheel is one (RLIMIT_NOFILE)",
	     (unsigned long long)lim.rlim_cur);
}

/* ---- it cannot be opened ---- */

static bool has_seccomp(const struct doctor *d)
{
	char line[128];
	FILE *in = fopen(in_root(d, "/proc/self/status"), "re");
	bool found = false;

	if (!in)
		return false;
	while (!found && fgets(line, sizeof(line), in))
		found = !strncmp(line, "Seccomp:", 8) && atoi(line + 8) == 2;
	fclose(in);
	return found;
}

static void tell_access(struct doctor *d, const char *path)
{
	struct statvfs fs;
	struct stat st;

	if (stat(path, &st) || !S_ISCHR(st.st_mode)) {
		tell(d, PROBLEM,
		     "look at the permissions of its directory",
		     "%s cannot be seen",
		     path);
		return;
	}
	if (!statvfs(path, &fs) && fs.f_flag & ST_NODEV) {
		tell(d, PROBLEM, "mount it without nodev, or bind /dev/twheel from a devtmpfs",
		     "%s lies on a file system that is mounted with nodev", path);
		return;
	}
	tell(d, PROBLEM, NULL,
	     "%s has mode %04o and belongs to user %u, group %u; you are user %u",
	     path,
	     st.st_mode & 07777, st.st_uid, st.st_gid, getuid());
	if ((st.st_mode & 0666) == 0666)
		tell(d, PROBLEM,
		     "look for AppArmor or SELinux in the log: sudo dmesg | grep -i denied",
		     "its mode would let you in, so a security module does not");
	else if (st.st_mode & 0060)
		tell(d, PROBLEM,
		     "sudo usermod -aG GROUP USER, log in again; or the udev rule of twheel(4)",
		     "only its group may open it");
	else
		tell(d, PROBLEM,
		     "have udev give it to you: 70-twheel.rules, see twheel(4); then sudo udevadm trigger /dev/twheel",
		     "only its owner may open it");
}

static void tell_eperm(struct doctor *d)
{
	if (examine_memory(d, true))
		return;
	if (is_container(d))
		tell(d, PROBLEM,
		     "start the container with --device /dev/twheel, or DeviceAllow=/dev/twheel rw",
		     "the container has the node, but not the right to open it (cgroup of devices)");
	else if (has_seccomp(d))
		tell(d, PROBLEM,
		     "allow open of the device and ioctl to this process (SystemCallFilter= of systemd)",
		     "a filter of system calls (seccomp) is on, and may be why");
	else
		tell(d, PROBLEM,
		     "sudo twheelctl top --sort memory; DevicePolicy= and DeviceAllow= of the service",
		     "user_memory_max is reached, or a cgroup of devices does not allow it");
}

/* A node that was made by hand may be that of another driver by now */
static void tell_stale(struct doctor *d, const char *path)
{
	char dev[32] = "";
	struct stat st;

	if (!first_line(in_root(d, "/sys/class/twheel/twheel/dev"), dev, sizeof(dev))) {
		examine_module(d);
		return;
	}
	if (!stat(path, &st))
		tell(d, PROBLEM,
		     "remove it and let udev make it anew, or mknod it with those numbers",
		     "%s is device %u:%u, but that of the module is %s", path, major(st.st_rdev),
		     minor(st.st_rdev), dev);
}

static void examine_error(struct doctor *d, const char *path, int err)
{
	tell(d, PROBLEM, NULL, "%s cannot be opened: %s", path, strerror(err));
	switch (err) {
	case ENOENT:
	case ENOTDIR:
		examine_module(d);
		return;
	case ENXIO:
	case ENODEV:
		tell_stale(d, path);
		return;
	case EACCES:
		tell_access(d, path);
		return;
	case EPERM:
		tell_eperm(d);
		return;
	case EMFILE:
		tell(d, PROBLEM, "ulimit -n 1024, or LimitNOFILE= of the service",
		     "this process may have no more descriptors (RLIMIT_NOFILE)");
		return;
	case ENFILE:
		tell(d, PROBLEM,
		     "raise the sysctl fs.file-max",
		     "the machine may have no more open files");
		return;
	case ENOMEM:
		tell(d, PROBLEM, "raise memory.max of its cgroup, or free memory",
		     "there is no memory for a wheel");
		return;
	}
	tell(d, PROBLEM, "look at the kernel's log", "this error is unknown");
}

/* ---- it can be opened ---- */

/* Arms a timer and sees whether it comes */
static void examine_firing(struct doctor *d, int fd)
{
	struct twheel_op op = { .flags = TWHEEL_F_REL, .expires_ns = NSEC_PER_MSEC };
	const struct timespec ts = { .tv_sec = FIRE_MS / 1000 };
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char late[FMT_NS_LEN];
	struct twheel_event ev;

	if (ioctl(fd, TWHEEL_IOC_ARM, &op)) {
		if (errno != EPERM || !examine_memory(d, true))
			tell(d, PROBLEM, "look at memory, and memory.max of its cgroup",
			     "a timer cannot be armed: %s", strerror(errno));
		return;
	}
	if (ppoll(&pfd, 1, &ts, NULL) != 1 || read(fd, &ev, sizeof(ev)) != sizeof(ev)) {
		tell(d, PROBLEM, "look at the kernel's log; this would be a bug of the module",
		     "a timer of 1 ms has not fired within %d s", FIRE_MS / 1000);
		return;
	}
	tell(d, FINE, NULL, "a timer of 1 ms fires, %s late",
	     format_ns(late, ev.fired_ns > ev.expires_ns ? ev.fired_ns - ev.expires_ns : 0));
}

static void examine_device(struct doctor *d, const char *path, int fd)
{
	struct twheel_info info = { .size = sizeof(info) };

	tell(d, FINE, NULL, "%s can be opened", path);
	if (ioctl(fd, TWHEEL_IOC_INFO, &info)) {
		if (errno == ENOTTY)
			tell(d, PROBLEM, "remove the node and let udev make it anew",
			     "%s is the device of another driver", path);
		else
			tell(d, PROBLEM,
			     "allow ioctl to this process (SystemCallFilter= of systemd)",
			     "it does not answer: %s%s", strerror(errno),
			     has_seccomp(d) ? "; a filter of system calls (seccomp) is on" : "");
		return;
	}
	tell(d, FINE, NULL, "a wheel has room for %u timers, and for %u at most", info.capacity,
	     info.capacity_max);
	examine_firing(d, fd);
	examine_memory(d, false);
	examine_descriptors(d);
}

int examine(const struct options *opt)
{
	struct doctor d = { .opt = opt };
	char path[PATH_MAX];
	struct utsname uts;
	int fd;

	if (!first_line(in_root(&d, "/proc/sys/kernel/osrelease"), d.release, sizeof(d.release)) &&
	    !uname(&uts))
		snprintf(d.release, sizeof(d.release), "%s", uts.release);
	tell(&d, FINE, NULL, "the kernel is %s%s", d.release,
	     is_container(&d) ? ", and this is a container" : "");
	snprintf(path, sizeof(path), "%s", in_root(&d, "%s", opt->device));
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		examine_error(&d, path, errno);
		return EXIT_DEVICE;
	}
	examine_device(&d, path, fd);
	close(fd);
	return d.worst == PROBLEM ? EXIT_DEVICE : d.worst == WARNING ? EXIT_RUN_BAD : EXIT_RUN_OK;
}

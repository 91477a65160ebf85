// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/kcmp.h>

#include "parse.h"
#include "wheels.h"

/* The number that @name is, or -1 */
static int number(const char *name)
{
	char *end;
	long val;

	if (*name < '0' || *name > '9')
		return -1;
	errno = 0;
	val = strtol(name, &end, 10);
	return errno || *end || val > INT_MAX ? -1 : (int)val;
}

/* Those of user space have a command line */
static bool is_kernel_thread(const char *proc, int pid)
{
	char path[PATH_MAX];
	FILE *in;
	int c;

	snprintf(path, sizeof(path), "%s/%d/cmdline", proc, pid);
	in = fopen(path, "re");
	if (!in)
		return true;
	c = getc(in);
	fclose(in);
	return c == EOF;
}

static void read_command(const char *proc, struct wheel *w)
{
	char path[PATH_MAX], *p;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%d/comm", proc, w->pid);
	in = fopen(path, "re");
	if (in) {
		if (!fgets(w->command, sizeof(w->command), in))
			w->command[0] = '\0';
		fclose(in);
	}
	w->command[strcspn(w->command, "\n")] = '\0';
	if (!check_label(w->command))
		return;
	for (p = w->command; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

static void read_line(struct wheel *w, const char *key, const char *val)
{
	const struct {
		const char *key;
		__u64 *val;
	} fields[] = {
		{ "clockid", &w->clockid }, { "now_ns", &w->now_ns },
		{ "tick_ns", &w->tick_ns }, { "capacity", &w->capacity },
		{ "armed", &w->armed }, { "ready", &w->ready },
		{ "memory", &w->memory }, { "next_wake_ns", &w->next_wake_ns },
		{ "arms", &w->arms }, { "fired", &w->fired },
		{ "wakeups", &w->wakeups },
	};
	unsigned long long below;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		if (strcmp(key, fields[i].key))
			continue;
		*fields[i].val = *val == 'n' ? TWHEEL_NEVER : strtoull(val, NULL, 10);
		return;
	}
	if (sscanf(key, "late_below_%lluns", &below) != 1 || !below)
		return;
	w->late[63 - __builtin_clzll(below)] = strtoull(val, NULL, 10);
}

/* False if it is gone, or no wheel */
static bool read_fdinfo(const char *proc, struct wheel *w)
{
	char path[PATH_MAX], line[128], key[64], val[64];
	FILE *in;

	snprintf(path, sizeof(path), "%s/%d/fdinfo/%d", proc, w->pid, w->fd);
	in = fopen(path, "re");
	if (!in)
		return false;
	while (fgets(line, sizeof(line), in))
		if (sscanf(line, "%63[^:]: %63s", key, val) == 2)
			read_line(w, key, val);
	fclose(in);
	return w->tick_ns;
}

/*
 * Containers see the device by other paths, but not by other names. The link of what is
 * gone meanwhile has no name at all.
 */
static bool is_device(const char *path, const char *device)
{
	const char *name = strrchr(device, '/'), *slash;
	char target[PATH_MAX];
	ssize_t len = readlink(path, target, sizeof(target) - 1);

	if (len < 0)
		return false;
	target[len] = '\0';
	slash = strrchr(target, '/');
	return slash && !strcmp(slash, name ? name : device);
}

static int add_wheel(struct wheels *all, const struct wheel *w)
{
	struct wheel *v;

	if (!(all->nr & (all->nr - 1))) {
		v = realloc(all->v, (all->nr ? all->nr * 2 : 1) * sizeof(*v));
		if (!v) {
			perror("twheelctl");
			return -1;
		}
		all->v = v;
	}
	all->v[all->nr++] = *w;
	return 0;
}

static int find_in_process(const char *proc, const char *device, int pid,
			   struct wheels *all)
{
	char path[PATH_MAX], link[PATH_MAX + 16];
	struct dirent *entry;
	struct stat st;
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%d/fd", proc, pid);
	dir = opendir(path);
	if (!dir) {
		all->hidden += (errno == EACCES || errno == EPERM) &&
			       !is_kernel_thread(proc, pid);
		return 0;
	}
	while (!ret && (entry = readdir(dir))) {
		struct wheel w = { .pid = pid, .fd = number(entry->d_name), .holders = 1 };

		snprintf(link, sizeof(link), "%s/%d", path, w.fd);
		if (w.fd < 0 || !is_device(link, device) || !read_fdinfo(proc, &w))
			continue;
		if (!stat(path, &st))
			w.uid = st.st_uid;
		read_command(proc, &w);
		ret = add_wheel(all, &w);
	}
	closedir(dir);
	return ret;
}

static int by_holder(const void *left, const void *right)
{
	const struct wheel *a = left, *b = right;

	return a->pid != b->pid ? (a->pid > b->pid) - (a->pid < b->pid) :
				  (a->fd > b->fd) - (a->fd < b->fd);
}

/* The kernel has an order of open files. It tells nothing of processes that are gone */
static int by_file(const void *left, const void *right)
{
	const struct wheel *a = left, *b = right;

	switch (syscall(SYS_kcmp, a->pid, b->pid, KCMP_FILE, a->fd, b->fd)) {
	case 0:
		return 0;
	case 1:
		return -1;
	case 2:
		return 1;
	}
	return by_holder(left, right);
}

/* dup(), fork() and SCM_RIGHTS make more descriptors of one wheel: one of them stays */
static void merge(struct wheels *all)
{
	size_t i, nr = 1;

	if (all->nr < 2)
		return;
	qsort(all->v, all->nr, sizeof(*all->v), by_file);
	for (i = 1; i < all->nr; i++) {
		struct wheel *last = &all->v[nr - 1], *w = &all->v[i];

		if (by_file(last, w)) {
			all->v[nr++] = *w;
			continue;
		}
		w->holders += last->holders;
		if (by_holder(w, last) < 0)
			*last = *w;
		else
			last->holders = w->holders;
	}
	all->nr = nr;
}

int find_wheels(const char *proc, const char *device, struct wheels *all)
{
	DIR *dir = opendir(proc);
	struct dirent *entry;
	int pid, ret = 0;

	memset(all, 0, sizeof(*all));
	if (!dir) {
		fprintf(stderr, "twheelctl: cannot look into %s: %s\n", proc, strerror(errno));
		return -1;
	}
	while (!ret && (entry = readdir(dir))) {
		pid = number(entry->d_name);
		if (pid >= 0)
			ret = find_in_process(proc, device, pid, all);
	}
	closedir(dir);
	/* elsewhere numbers of processes are others */
	if (!strcmp(proc, "/proc"))
		merge(all);
	if (all->nr)
		qsort(all->v, all->nr, sizeof(*all->v), by_holder);
	return ret;
}

void free_wheels(struct wheels *all)
{
	free(all->v);
	memset(all, 0, sizeof(*all));
}

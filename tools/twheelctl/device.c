// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "device.h"

static const char *open_hint(int err)
{
	switch (err) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return " (is the module loaded? see twheelctl doctor)";
	case EACCES:
		return " (try as root, or give yourself access by a udev rule)";
	case EPERM:
		return " (your wheels hold all the memory that user_memory_max allows)";
	}
	return "";
}

int device_open(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		fprintf(stderr, "twheelctl: cannot open %s: %s%s\n", path,
			strerror(errno), open_hint(errno));
	return fd;
}

static int failed(const char *call)
{
	fprintf(stderr, "twheelctl: %s: %s%s\n", call, strerror(errno),
		errno == ENOTTY ? " (this is no twheel device)" : "");
	return -1;
}

int device_info(int fd, struct twheel_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	if (ioctl(fd, TWHEEL_IOC_INFO, info))
		return failed("TWHEEL_IOC_INFO");
	return 0;
}

int device_setup(int fd, struct twheel_setup *setup)
{
	setup->size = sizeof(*setup);
	if (!ioctl(fd, TWHEEL_IOC_SETUP, setup))
		return 0;
	if (errno == EPERM)
		fprintf(stderr, "twheelctl: %u timers: twheelctl info tells the limit\n",
			setup->capacity);
	return failed("TWHEEL_IOC_SETUP");
}

int device_next(int fd, __u64 *expires_ns)
{
	struct twheel_next next = { .size = sizeof(next) };

	while (ioctl(fd, TWHEEL_IOC_NEXT, &next))
		if (errno != EINTR)
			return failed("TWHEEL_IOC_NEXT");
	*expires_ns = next.expires_ns;
	return 0;
}

int device_advance(int fd, __u64 to_ns)
{
	struct twheel_advance advance = {
		.size = sizeof(advance),
		.to_ns = to_ns,
	};

	if (ioctl(fd, TWHEEL_IOC_ADVANCE, &advance))
		return failed("TWHEEL_IOC_ADVANCE");
	return 0;
}

bool device_counter(int fd, const char *key, __u64 *val)
{
	size_t len = strlen(key);
	bool found = false;
	char line[128];
	FILE *in;

	snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", fd);
	in = fopen(line, "re");
	if (!in)
		return false;
	while (!found && fgets(line, sizeof(line), in))
		found = !strncmp(line, key, len) &&
			sscanf(line + len, ": %llu", val) == 1;
	fclose(in);
	return found;
}

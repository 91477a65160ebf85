// SPDX-License-Identifier: MIT
/* device.c - three timers on one descriptor; the second is cancelled */
#include <err.h>
#include <fcntl.h>
#include <linux/twheel.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(void)
{
	int fd = open("/dev/twheel", O_RDWR | O_CLOEXEC);
	struct twheel_event events[64];

	if (fd < 0)
		err(1, "/dev/twheel");
	for (int i = 1; i <= 3; i++) {
		struct twheel_op op = { .flags = TWHEEL_F_REL, .user_data = i,
					.expires_ns = i * 100000000ULL };

		if (ioctl(fd, TWHEEL_IOC_ARM, &op))
			err(1, "arm");
		if (i == 2 && ioctl(fd, TWHEEL_IOC_CANCEL, &op) < 0)
			err(1, "cancel");
	}
	for (int left = 2; left > 0;) {
		ssize_t bytes = read(fd, events, sizeof(events));

		if (bytes < 0)
			err(1, "read");
		for (int i = 0; i < bytes / (int)sizeof(*events); i++, left--)
			printf("timer %llu, %llu ns late\n",
			       (unsigned long long)events[i].user_data,
			       (unsigned long long)(events[i].fired_ns -
						    events[i].expires_ns));
	}
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * handover.c - a program is replaced by its next version, and its timers go on
 *
 * The timers belong to the descriptor, not to the process: they fire while nobody looks, and
 * whoever has the descriptor next reads what has fired. No timer inside a program can do
 * that. Here the descriptor is inherited; it can also be sent to another process, by
 * SCM_RIGHTS.
 */
#include <err.h>
#include <fcntl.h>
#include <linux/twheel.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NR	10

static void first_version(char *self)
{
	int i, wheel = open("/dev/twheel", O_RDWR);	/* not closed by exec */
	char number[12];

	if (wheel < 0)
		err(1, "/dev/twheel");
	for (i = 1; i <= NR; i++) {
		struct twheel_op op = {
			.flags = TWHEEL_F_REL,
			.user_data = i,
			.expires_ns = i * 50000000ULL,
		};

		if (ioctl(wheel, TWHEEL_IOC_ARM, &op))
			err(1, "arm");
	}
	snprintf(number, sizeof(number), "%d", wheel);
	printf("version 1 has armed %d timers, and is replaced\n", NR);
	fflush(stdout);
	execl(self, self, number, (char *)NULL);
	err(1, "%s", self);
}

static void second_version(int wheel)
{
	struct twheel_event events[NR];
	ssize_t i, nr, left;

	usleep(200000);		/* it takes its time to start */
	for (left = NR; left > 0; left -= nr) {
		nr = read(wheel, events, sizeof(events)) / (ssize_t)sizeof(*events);
		if (nr < 1)
			err(1, "read");
		printf("version 2 has read %zd:", nr);
		for (i = 0; i < nr; i++)
			printf(" timer %llu", (unsigned long long)events[i].user_data);
		puts("");
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		second_version(atoi(argv[1]));
	else
		first_version(argv[0]);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 */
/* The wheels of the machine, as /proc shows them */
#ifndef TWHEELCTL_WHEELS_H
#define TWHEELCTL_WHEELS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <linux/twheel.h>

/**
 * struct wheel - what is known of one
 * @pid:      the process with the lowest number that has it
 * @fd:       its lowest descriptor there
 * @uid:      who that process belongs to
 * @command:  its name, without control characters
 * @holders:  how many descriptors there are in all, in processes that may be seen
 * @now_ns:   on the clock of the wheel
 * @next_wake_ns: on the same clock, or TWHEEL_NEVER
 * @memory:   bytes
 * @late:     expiries by lateness, as in struct twheel_stats
 *
 * The others are as in struct twheel_info and struct twheel_stats.
 */
struct wheel {
	pid_t pid;
	int fd;
	uid_t uid;
	char command[32];
	unsigned int holders;
	__u64 clockid;
	__u64 now_ns;
	__u64 tick_ns;
	__u64 capacity;
	__u64 armed;
	__u64 ready;
	__u64 memory;
	__u64 next_wake_ns;
	__u64 arms;
	__u64 fired;
	__u64 wakeups;
	__u64 late[TWHEEL_LATENESS_BUCKETS];
};

/**
 * struct wheels - all of them at one time
 * @v:      the wheels, by pid and fd
 * @nr:     how many
 * @hidden: processes that may not be looked into
 */
struct wheels {
	struct wheel *v;
	size_t nr;
	size_t hidden;
};

/* Looks for descriptors of @device in @proc; 0, or -1 with a message on stderr */
int find_wheels(const char *proc, const char *device, struct wheels *all);
void free_wheels(struct wheels *all);

#endif /* TWHEELCTL_WHEELS_H */

/* SPDX-License-Identifier: GPL-2.0 */
/* Durations, wall-clock times and the lines of a timer file */
#ifndef TWHEELCTL_PARSE_H
#define TWHEELCTL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_MSEC	1000000ULL
#define TIME_MAX_NS	((__u64)~0ULL >> 1)
#define DIGITS		"0123456789"
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/**
 * struct timer_spec - one timer as the user wrote it
 * @when_ns:  delay, or the time since the epoch if @at is set
 * @every_ns: period, 0: expires once
 * @count:    expiries in all of a periodic timer, 0: endless
 * @line:     number of its line
 * @at:       @when_ns is a wall-clock time
 * @label:    its name
 */
struct timer_spec {
	__u64 when_ns;
	__u64 every_ns;
	__u32 count;
	unsigned int line;
	bool at;
	char *label;
};

/**
 * struct timer_file - all timers of one file
 * @name: how messages call the file
 * @v:    the timers, in the order of the file
 * @nr:   how many
 * @left_out: how many were in the file besides, but are not wanted
 * @bad:  how many lines were complained about
 */
struct timer_file {
	const char *name;
	struct timer_spec *v;
	size_t nr;
	size_t left_out;
	unsigned int bad;
};

/* These return NULL, or what is wrong with @s */
const char *parse_duration(const char *s, __u64 *ns);
const char *parse_when(const char *s, struct timer_spec *spec);
const char *parse_u32(const char *s, __u32 *val);
const char *check_label(const char *s);

/* The time at which the last expiry is due, TIME_MAX_NS if there is none */
__u64 last_expiry(const struct timer_spec *spec, __u64 first);

int load_file(const char *path, struct timer_file *file);
void complain(struct timer_file *file, unsigned int line, const char *what,
	      const char *text);

#endif /* TWHEELCTL_PARSE_H */

/* SPDX-License-Identifier: GPL-2.0 */
/* Durations, wall-clock times and the lines of a timer file */
#ifndef TWHEELCTL_PARSE_H
#define TWHEELCTL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#include "cron.h"

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_MSEC	1000000ULL
#define TIME_MAX_NS	((__u64)~0ULL >> 1)
#define DIGITS		"0123456789"
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/**
 * struct cron_spec - times of a calendar
 * @cron: those
 * @zone: where; NULL is UTC
 * @text: the expression
 * @tz:   the name of the zone
 */
struct cron_spec {
	struct cron cron;
	struct zone *zone;
	char *text;
	char *tz;
};

/**
 * struct timer_spec - one timer as the user wrote it
 * @cron:     if not NULL: it expires at these times, and @when_ns does not count
 * @when_ns:  delay, or the time since the epoch if @at is set
 * @every_ns: period, 0: expires once
 * @count:    expiries in all of one that comes again, 0: endless
 * @line:     number of its line
 * @at:       @when_ns is a wall-clock time
 * @label:    its name
 */
struct timer_spec {
	struct cron_spec *cron;
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

/* The first of those times after @after_ns, TIME_MAX_NS if there is none */
__u64 next_of_cron(const struct cron_spec *cron, __u64 after_ns);

int load_file(const char *path, struct timer_file *file);
void free_timer(struct timer_spec *spec);
void complain(struct timer_file *file, unsigned int line, const char *what,
	      const char *text);

#endif /* TWHEELCTL_PARSE_H */

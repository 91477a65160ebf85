/* SPDX-License-Identifier: GPL-2.0 */
/* The lateness of a run, to be drawn */
#ifndef TWHEELCTL_PLOT_H
#define TWHEELCTL_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

/**
 * struct firing - one record
 * @at_ns:   when, since the beginning of the run
 * @late_ns: how late
 */
struct firing {
	__u64 at_ns;
	__u64 late_ns;
};

/**
 * struct column - the firings of one part of the time; none of them if @nr is 0
 */
struct column {
	size_t nr;
	__u64 min_ns;
	__u64 median_ns;
	__u64 max_ns;
};

/**
 * struct plot - a run
 * @v:       its firings, by @at_ns
 * @nr:      how many
 * @late:    their lateness, ascending
 * @tick_ns: granularity of the wheel, 0: not known
 * @end_ns:  the last @at_ns, 1 at least
 * @low:     logarithm of the least lateness that is shown, a whole number ...
 * @high:    ... and of the largest
 */
struct plot {
	struct firing *v;
	size_t nr;
	__u64 *late;
	__u64 tick_ns;
	__u64 end_ns;
	double low;
	double high;
};

/* Where @ns lies on the logarithmic axis of lateness: 0 at the low end, 1 at the high one */
double position(const struct plot *p, __u64 ns);

__u64 quantile(const struct plot *p, double share);

/* Divides the time into @nr parts; 0, or -1 without memory */
int make_columns(const struct plot *p, struct column *columns, size_t nr);

int print_svg(const struct plot *p);

#endif /* TWHEELCTL_PLOT_H */

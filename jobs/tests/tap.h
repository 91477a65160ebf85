/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Results of tests, as TAP.
 */
#ifndef TWHEELD_TAP_H
#define TWHEELD_TAP_H

#include <stdbool.h>
#include <stdio.h>

static int tap_nr, tap_failed;

static inline void ok(bool good, const char *sentence)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++tap_nr, sentence);
	fflush(stdout);
	if (!good)
		tap_failed++;
}

/* What main() returns. */
static inline int done_testing(void)
{
	printf("1..%d\n", tap_nr);
	return tap_failed != 0;
}

#endif

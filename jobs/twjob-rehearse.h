/* SPDX-License-Identifier: GPL-2.0 */
/* What "twjob rehearse" shows of schedules in virtual time. */
#ifndef TWJOB_REHEARSE_H
#define TWJOB_REHEARSE_H

#include "rehearse.h"
#include "twjob.h"

/**
 * struct view - how it is shown
 * @zone:   in which times are told; NULL is UTC
 * @tz:     its name
 * @takes:  it is known how long jobs take
 * @json:   objects, one a line
 * @colour: the terminal has it
 * @utf8:   it has more than ASCII
 * @width:  columns
 * @real_ns: how long it took
 */
struct view {
	const struct zone *zone;
	const char *tz;
	bool takes, json, colour, utf8;
	int width;
	uint64_t real_ns;
};

/* RFC 3339, with the offset that is there then. */
#define STAMP_TEXT	48
const char *stamp(const struct zone *z, int64_t us, char text[STAMP_TEXT]);

/* "2 h", of what is one of a few spans */
const char *span_text(int64_t us, char text[STAMP_TEXT]);

/**
 * struct chart - bars over the time of a rehearsal
 * @span_us: of each
 * @nr:      how many
 * @minute:  the busiest minute in each
 * @second:  the same of seconds
 * @most_minute: the largest of those
 * @most_second: the same
 */
struct chart {
	int64_t span_us;
	uint32_t nr;
	uint32_t *minute, *second;
	uint32_t most_minute, most_second;
};

void chart_init(struct chart *c, const struct rehearsal *r, uint32_t most_bars);
void chart_free(struct chart *c);

/* What stands below an axis where @at_us is: a time or a date, as long as all of it is. */
void chart_label(const struct rehearsal *r, const struct zone *z, int64_t at_us,
		 char text[STAMP_TEXT]);

void chart_print(const struct rehearsal *r, const struct view *view);

/* Ends twjob if the file cannot be written. */
void chart_svg(const struct rehearsal *r, const struct view *view, const char *path);

/* Clocks that are set in the zones of schedules, in order of time; the number, and those to free */
struct zone_change {
	const char *tz;
	const struct zone *zone;
	struct clock_change change;
};

uint32_t zone_changes(const struct rehearsal *r, struct zone_change **v);

/* Goes through the time; ends twjob if that fails or if it is too much. */
void rehearse_go(struct rehearsal *r, struct view *view);

/* Tells what became of the schedules. */
void report(const struct rehearsal *r, const struct view *view);

/* Compares two lists, the first @nr_old of the rehearsal with the others; the exit status. */
int rehearse_diff(struct rehearsal *r, uint32_t nr_old, struct view *view, bool list);

#endif

// SPDX-License-Identifier: GPL-2.0
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "db.h"
#include "snapshot.h"

/* The first of the last look that is not wholly before that. Both lists are in order. */
static const struct running *first_running(const struct snapshots *s, uint64_t xid)
{
	uint32_t low = 0, high = s->nr_running, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (s->running[middle].end <= xid)
			low = middle + 1;
		else
			high = middle;
	}
	return s->running + low;
}

static void find_running(struct snapshots *s, uint64_t first, uint64_t end)
{
	const struct running *r, *last = s->running + s->nr_running;
	int64_t since_us = s->last_us;

	for (r = first_running(s, first); r < last && r->first < end; r++)
		if (r->since_us < since_us)
			since_us = r->since_us;
	s->found = xrealloc(s->found, (s->nr_found + 1) * sizeof(*s->found));
	s->found[s->nr_found++] = (struct running){ first, end, since_us };
}

/* "XMIN:XMAX:XID,XID...": those under way. */
void snapshots_begin(struct snapshots *s, const char *text, uint64_t own_xid)
{
	const char *colon = strchr(text, ':');
	uint64_t xid, xmax = colon ? strtoull(colon + 1, NULL, 10) : 0;
	const char *at = colon ? strchr(colon + 1, ':') : NULL;
	char *end;

	s->nr_found = 0;
	s->voided = false;
	for (; at && *at; at = end) {
		xid = strtoull(at + 1, &end, 10);
		if (end == at + 1)
			break;
		find_running(s, xid, xid + 1);
	}
	if (xmax < own_xid)
		find_running(s, xmax, own_xid);
}

/*
 * Whether none of them has ended since. Of several that were kept together that is not known, and
 * they are not found together again: the number of a look is higher each time.
 */
static bool still_runs(const struct snapshots *s, const struct running *r, uint32_t *at)
{
	while (*at < s->nr_found && s->found[*at].end <= r->first)
		++*at;
	return *at < s->nr_found && s->found[*at].first == r->first &&
	       s->found[*at].end == r->end;
}

int64_t snapshots_from_us(const struct snapshots *s)
{
	int64_t from_us = s->last_us;
	uint32_t i, at = 0;

	for (i = 0; i < s->nr_running; i++)
		if (!still_runs(s, &s->running[i], &at) && s->running[i].since_us < from_us)
			from_us = s->running[i].since_us;
	return from_us;
}

void snapshots_void(struct snapshots *s)
{
	uint32_t i;

	s->voided = true;
	s->last_us = PG_MINUS_INF;
	for (i = 0; i < s->nr_running; i++)
		s->running[i].since_us = PG_MINUS_INF;
}

void snapshots_take(struct snapshots *s, int64_t last_us, const struct running *running,
		    uint32_t nr)
{
	s->last_us = last_us;
	s->running = xrealloc(s->running, (nr + 1) * sizeof(*running));
	memcpy(s->running, running, nr * sizeof(*running));
	s->nr_running = nr;
}

void snapshots_end(struct snapshots *s, int64_t now_us)
{
	struct running *old = s->running;

	s->last_us = now_us;
	s->running = s->found;
	s->nr_running = s->nr_found;
	s->found = old;
	if (s->voided)
		snapshots_void(s);
}

void snapshots_init(struct snapshots *s)
{
	*s = (struct snapshots){ .last_us = PG_MINUS_INF };
}

void snapshots_free(struct snapshots *s)
{
	free(s->running);
	free(s->found);
}

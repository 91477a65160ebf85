// SPDX-License-Identifier: GPL-2.0
#include "../tap.h"
#include "db.h"
#include "snapshot.h"

/* A look: what it gets to see, when it began, and whether it comes to its end. */
static int64_t look(struct snapshots *s, const char *text, uint64_t own_xid, int64_t now_us)
{
	int64_t from_us;

	s->voided = false;
	snapshots_begin(s, text, own_xid);
	from_us = snapshots_from_us(s);
	snapshots_end(s, now_us);
	return from_us;
}

static void quiet(void)
{
	struct snapshots s;

	snapshots_init(&s);
	ok(look(&s, "100:100:", 100, 10) == PG_MINUS_INF, "the first look reads all");
	ok(look(&s, "101:101:", 101, 20) == 10, "the next one reads from when the last one began");
	ok(look(&s, "150:150:", 150, 30) == 20,
	   "what began and ended between two looks was not due before the first of them");
	snapshots_free(&s);
}

static void listed(void)
{
	struct snapshots s;

	snapshots_init(&s);
	look(&s, "100:100:", 100, 10);
	look(&s, "100:103:100,102", 103, 20);
	ok(look(&s, "100:104:100,102", 104, 30) == 20, "what is still under way is not waited for");
	ok(look(&s, "100:105:100", 105, 40) == 10,
	   "when it has ended all since the look before it was found is read");
	ok(look(&s, "100:106:100", 106, 50) == 40, "once");
	ok(look(&s, "107:107:", 107, 60) == 10, "each has a time of its own");
	snapshots_free(&s);
}

/* 100 and 101 are under way, and no higher number has ended: so neither is listed. */
static void beyond(void)
{
	struct snapshots s;

	snapshots_init(&s);
	look(&s, "90:90:", 90, 10);
	look(&s, "100:100:", 102, 20);
	look(&s, "101:101:", 110, 30);
	ok(look(&s, "111:111:", 111, 40) <= 10,
	   "what is not listed, as nothing that began later had ended, is remembered");
	look(&s, "90:120:119", 120, 50);
	ok(look(&s, "121:121:", 121, 60) == 40, "and not for ever");
	snapshots_free(&s);
}

static void one_beyond(void)
{
	struct snapshots s;

	snapshots_init(&s);
	look(&s, "90:90:", 90, 10);
	look(&s, "100:100:", 101, 20);
	ok(look(&s, "100:102:100", 102, 30) == 20,
	   "one alone that is listed then is still under way");
	ok(look(&s, "103:103:", 103, 40) == 10, "and has its time from when it was not listed");
	snapshots_free(&s);
}

static void voided(void)
{
	struct snapshots s;

	snapshots_init(&s);
	look(&s, "100:101:100", 101, 10);
	look(&s, "100:102:100", 102, 20);
	snapshots_void(&s);
	ok(look(&s, "100:103:100", 103, 5) == PG_MINUS_INF, "when a clock was set all is read");
	ok(look(&s, "104:104:", 104, 6) == PG_MINUS_INF,
	   "and again when what was under way has ended");
	s.voided = false;
	snapshots_begin(&s, "105:105:", 105);
	snapshots_void(&s);
	snapshots_end(&s, 50);
	ok(look(&s, "106:106:", 106, 7) == PG_MINUS_INF,
	   "and if that was while the look was under way");
	snapshots_free(&s);
}

static void wrong(void)
{
	struct snapshots s;

	snapshots_init(&s);
	look(&s, "100:100:", 100, 10);
	snapshots_begin(&s, "100:102:100\0,999999", 102);
	ok(s.nr_found == 1 && s.found[0].first == 100,
	   "a snapshot is read no further than to its end");
	snapshots_free(&s);
}

int main(void)
{
	quiet();
	listed();
	beyond();
	one_beyond();
	voided();
	wrong();
	return done_testing();
}

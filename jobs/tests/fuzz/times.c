// SPDX-License-Identifier: GPL-2.0
/*
 * Any bytes as a file of a zone, and as an expression of cron. What is taken has times that go
 * on and on, each in the expression; what is refused has a column and a reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cron.h"

#define CHECK(what) check(what, #what)

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

/* Local times go on with instants, in whatever zone. */
static void check_zone(const struct zone *z)
{
	int64_t at = -3000000000, until, last = INT64_MIN, instant;
	int i;

	for (i = 0; i < 100 && at < 8000000000; i++, at = until) {
		int32_t offset = zone_offset(z, at, &until);

		CHECK(until > at);
		CHECK(abs(offset) <= ZONE_MAX_OFFSET);
		if (until > at + 100000000)
			until = at + 100000000;
	}
	for (i = 0; i < 100; i++) {
		instant = zone_instant(z, i * 40000000LL);
		CHECK(instant >= last);
		last = instant;
	}
}

static void check_cron(const char *text, const struct zone *z)
{
	struct cron_error error = {};
	int64_t at = 1700000000, next;
	struct cron c;
	int i;

	if (!cron_parse(&c, text, &error)) {
		CHECK(error.reason && error.column >= 1 && error.column <= strlen(text) + 1);
		return;
	}
	for (i = 0; i < 5; i++, at = next) {
		next = cron_next(&c, z, at);
		CHECK(next > at);
		if (next == CRON_NEVER)
			break;
		CHECK(c.seconds >> next % 60 & 1 || z);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cron_error error;
	struct zone *z;
	struct cron c;
	char *text;

	if (!zone_parse(&z, data, size)) {
		check_zone(z);
		CHECK(cron_parse(&c, "30 2 * * *", &error));
		check_cron("30 2 * * *", z);
		check_cron("0 0 */3 ? * MON#2", z);
		zone_close(z);
	}
	text = strndup((const char *)data, size);
	check_cron(text, NULL);
	free(text);
	return 0;
}

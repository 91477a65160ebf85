// SPDX-License-Identifier: GPL-2.0
/*
 * Compares cron_next() with lines of another implementation: an expression, a time, and when it
 * is next, "never" if it is not, each separated by a tab. Prints those that differ.
 *
 *   compare [ZONE] <LINES
 *
 * Quartz looks no farther than a hundred years from now: what is later than that is no difference.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cron.h"

#define CENTURY	(100 * 365 * 86400LL)

static char line[4096];

static bool is_same(struct zone *z)
{
	char *rest = line, *text = strsep(&rest, "\t"), *word = strsep(&rest, "\t");
	struct cron_error error;
	int64_t at, other;
	struct cron c;

	if (!word)
		return false;
	if (!cron_parse(&c, text, &error)) {
		printf("# %s: column %u: %s\n", text, error.column, error.reason);
		return false;
	}
	at = strtoll(word, NULL, 10);
	while ((word = strsep(&rest, "\t"))) {
		if (at != CRON_NEVER)
			at = cron_next(&c, z, at);
		other = strcmp(word, "never") ? strtoll(word, NULL, 10) : CRON_NEVER;
		if (at != other && (other != CRON_NEVER || at < time(NULL) + CENTURY)) {
			printf("# %s: %" PRId64 ", not %s\n", text, at, word);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	unsigned long nr = 0, differ = 0;
	struct zone *z = NULL;

	if (argc > 1 && zone_open(&z, argv[1])) {
		fprintf(stderr, "compare: there is no zone %s\n", argv[1]);
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		nr++;
		differ += !is_same(z);
	}
	printf("# %lu compared, %lu differ\n", nr, differ);
	zone_close(z);
	return differ || !nr;
}

// SPDX-License-Identifier: GPL-2.0
/* Lateness over time for the terminal: shapes and no colours */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "plot.h"
#include "report.h"
#include "run.h"

#define FIRINGS_MAX	(1U << 24)
#define ROWS		16
#define COLUMNS		64
#define MARGIN		0.1	/* in decades */

double position(const struct plot *p, __u64 ns)
{
	double pos;

	if (!ns)
		return 0;
	pos = (log10((double)ns) - p->low) / (p->high - p->low);
	return pos < 0 ? 0 : pos > 1 ? 1 : pos;
}

__u64 quantile(const struct plot *p, double share)
{
	size_t rank = (size_t)ceil(share * (double)p->nr);

	return p->late[rank ? rank - 1 : 0];
}

static int compare_late(const void *left, const void *right)
{
	const __u64 *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

static int compare_at(const void *left, const void *right)
{
	const struct firing *a = left, *b = right;

	return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

int make_columns(const struct plot *p, struct column *columns, size_t nr)
{
	__u64 *late = malloc(p->nr * sizeof(*late));
	size_t i, n, from = 0;

	if (!late)
		return -1;
	for (i = 0; i < nr; i++) {
		long double end = (long double)p->end_ns * (i + 1) / nr;

		for (n = 0; from < p->nr && (p->v[from].at_ns <= end || i == nr - 1); from++)
			late[n++] = p->v[from].late_ns;
		columns[i].nr = n;
		if (!n)
			continue;
		qsort(late, n, sizeof(*late), compare_late);
		columns[i].min_ns = late[0];
		columns[i].median_ns = late[(n - 1) / 2];
		columns[i].max_ns = late[n - 1];
	}
	free(late);
	return 0;
}

/* ---- reading what --json has printed ---- */

/* Texts of labels cannot look like that: their quotation marks are escaped */
static bool find_number(const char *line, const char *key, long long *val)
{
	const char *at = strstr(line, key);

	return at && sscanf(at + strlen(key), "%lld", val) == 1;
}

static const char *add_line(struct plot *p, const char *line)
{
	long long at, late, tick;
	struct firing *v;

	if (find_number(line, "\"tick_ns\":", &tick) && tick > 0)
		p->tick_ns = tick;
	if (strncmp(line, "{\"type\":\"fired\",", 16))
		return *line == '{' || *line == '\n' || !*line ? NULL : "is no JSON of twheelctl";
	if (!find_number(line, ",\"at_ns\":", &at) || !find_number(line, ",\"late_ns\":", &late))
		return "is no JSON of twheelctl";
	if (p->nr == FIRINGS_MAX)
		return "more than 16777216 firings";
	if (!(p->nr & (p->nr - 1))) {
		v = realloc(p->v, (p->nr ? p->nr * 2 : 1) * sizeof(*v));
		if (!v)
			return "no memory";
		p->v = v;
	}
	p->v[p->nr++] = (struct firing){ .at_ns = at > 0 ? at : 0,
					 .late_ns = late > 0 ? late : 0 };
	return NULL;
}

static int read_run(const char *path, struct plot *p)
{
	static const char none[] =
		"twheelctl: %s: nothing has fired; is it what --json printed, without --quiet?\n";
	FILE *in = strcmp(path, "-") ? fopen(path, "re") : stdin;
	const char *err = NULL;
	char *line = NULL;
	unsigned int nr = 0;
	size_t size = 0;

	if (!in) {
		fprintf(stderr, "twheelctl: %s: %s\n", path, strerror(errno));
		return EXIT_USAGE;
	}
	while (!err && getline(&line, &size, in) >= 0) {
		nr++;
		err = add_line(p, line);
	}
	if (err)
		fprintf(stderr, "%s:%u: %s\n", path, nr, err);
	else if (ferror(in))
		fprintf(stderr, "twheelctl: %s: %s\n", path, strerror(errno));
	else if (!p->nr)
		fprintf(stderr, none, path);
	if (ferror(in) || !p->nr)
		err = "";
	free(line);
	fclose(in);
	return err ? EXIT_USAGE : EXIT_RUN_OK;
}

/* A decade at least, so that what is near each other looks near */
static void find_range(struct plot *p)
{
	size_t i = 0;

	while (i < p->nr - 1 && !p->late[i])
		i++;
	p->low = p->late[i] ? floor(log10((double)p->late[i])) : 0;
	p->high = p->late[i] ? log10((double)p->late[p->nr - 1]) : 0;
	if (p->tick_ns)
		p->high = fmax(p->high, log10((double)p->tick_ns));
	p->high = fmax(p->high + MARGIN, p->low + 1);
}

static int prepare(struct plot *p)
{
	size_t i;

	p->late = malloc(p->nr * sizeof(*p->late));
	if (!p->late) {
		perror("twheelctl");
		return EXIT_DEVICE;
	}
	qsort(p->v, p->nr, sizeof(*p->v), compare_at);
	for (i = 0; i < p->nr; i++)
		p->late[i] = p->v[i].late_ns;
	qsort(p->late, p->nr, sizeof(*p->late), compare_late);
	p->end_ns = p->v[p->nr - 1].at_ns ? : 1;
	find_range(p);
	return EXIT_RUN_OK;
}

/* ---- the terminal ---- */

static int row_of(const struct plot *p, __u64 ns)
{
	return (int)(position(p, ns) * (ROWS - 1) + 0.5);
}

static void draw_row(const struct plot *p, const struct column columns[static COLUMNS], int row)
{
	char text[FMT_NS_LEN] = "", line[COLUMNS + 1];
	double decade;
	int i;

	for (i = 0; i < COLUMNS; i++) {
		const struct column *c = &columns[i];

		line[i] = p->tick_ns && row == row_of(p, p->tick_ns) ? '-' : ' ';
		if (!c->nr)
			continue;
		if (row >= row_of(p, c->min_ns) && row <= row_of(p, c->max_ns))
			line[i] = ':';
		if (row == row_of(p, c->max_ns))
			line[i] = '^';
		if (row == row_of(p, c->median_ns))
			line[i] = 'o';
	}
	line[COLUMNS] = '\0';
	for (i = (int)p->low; i <= p->high; i++) {
		decade = pow(10, i);
		if (row == row_of(p, (__u64)decade))
			format_ns(text, (__u64)decade);
	}
	printf("%8s |%s\n", text, line);
}

static int print_text(const struct plot *p)
{
	struct column columns[COLUMNS];
	char a[FMT_NS_LEN], b[FMT_NS_LEN], c[FMT_NS_LEN];
	int row, i;

	if (make_columns(p, columns, COLUMNS)) {
		perror("twheelctl");
		return EXIT_DEVICE;
	}
	puts("lateness");
	for (row = ROWS - 1; row >= 0; row--)
		draw_row(p, columns, row);
	printf("%8s +", "");
	for (i = 0; i < COLUMNS; i++)
		putchar('-');
	printf("\n%9s 0%*s  time\n", "", COLUMNS - 1, format_ns(a, p->end_ns));
	printf("%9s o median  ^ latest  : between earliest and latest", "");
	if (p->tick_ns)
		printf("  - tick, %s", format_ns(a, p->tick_ns));
	printf("\n\n%zu firings: median %s, 99%% at most %s, latest %s\n", p->nr,
	       format_ns(a, quantile(p, 0.5)), format_ns(b, quantile(p, 0.99)),
	       format_ns(c, p->late[p->nr - 1]));
	return EXIT_RUN_OK;
}

int plot_file(const struct options *opt, const char *path)
{
	struct plot p = { 0 };
	int ret = read_run(path, &p);

	if (!ret)
		ret = prepare(&p);
	if (!ret)
		ret = opt->svg ? print_svg(&p) : print_text(&p);
	free(p.v);
	free(p.late);
	return ret;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Lateness as a picture: over time above, and below how many firings were at most how
 * late. The colours are of Okabe and Ito, which all can tell apart, and what is drawn in
 * them differs in shape as well. Where the reader likes it dark the rest is light.
 */
#include <math.h>
#include <stdio.h>

#include "plot.h"
#include "report.h"
#include "run.h"

#define WIDTH		800
#define LEFT		80
#define RIGHT		780
#define TOP		60
#define BOTTOM		300
#define TOP2		400
#define BOTTOM2		580
#define HEIGHT		650
#define COLUMNS		175
#define POINTS_MAX	2000
#define STEPS		400

static double x_of_time(const struct plot *p, double ns)
{
	return LEFT + (RIGHT - LEFT) * ns / (double)p->end_ns;
}

static double y_of_late(const struct plot *p, __u64 ns)
{
	return BOTTOM - (BOTTOM - TOP) * position(p, ns);
}

static double x_of_late(const struct plot *p, __u64 ns)
{
	return LEFT + (RIGHT - LEFT) * position(p, ns);
}

static double y_of_share(double share)
{
	return BOTTOM2 - (BOTTOM2 - TOP2) * share;
}

static void put_text(double x, double y, const char *anchor, const char *s)
{
	printf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s);
}

static void put_line(const char *class, double x1, double y1, double x2, double y2)
{
	printf("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1,
	       y1, x2, y2);
}

static void head(const struct plot *p)
{
	char a[FMT_NS_LEN], b[FMT_NS_LEN], c[FMT_NS_LEN];

	printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
	       WIDTH, HEIGHT);
	puts("<title>Lateness of timers</title>\n"
	     "<style>\n"
	     "svg { color: #222; background: #fff; font: 13px sans-serif }\n"
	     "@media (prefers-color-scheme: dark) { svg { color: #ddd; background: #181818 } }\n"
	     "text { fill: currentColor }\n"
	     ".title { font-size: 17px }\n"
	     ".grid { stroke: currentColor; stroke-opacity: .2 }\n"
	     ".axis { stroke: currentColor }\n"
	     ".range { stroke: #0072b2; stroke-width: 2.5 }\n"
	     ".median { fill: #e69f00; stroke: currentColor; stroke-width: .5 }\n"
	     ".share { fill: none; stroke: #0072b2; stroke-width: 2.5 }\n"
	     ".tick { stroke: #d55e00; stroke-width: 1.5; stroke-dasharray: 7 4 }\n"
	     "@media (prefers-color-scheme: dark) { .range, .share { stroke: #56b4e9 } }\n"
	     "</style>");
	printf("<text class=\"title\" x=\"%d\" y=\"24\">Lateness of %zu firings: median %s, ",
	       LEFT, p->nr, format_ns(a, quantile(p, 0.5)));
	printf("99 %% at most %s, latest %s</text>\n",
	       format_ns(b, quantile(p, 0.99)), format_ns(c, p->late[p->nr - 1]));
}

/* 1, 2 or 5 of a power of ten: between four and ten of them */
static double step_of(double range)
{
	double step = pow(10, floor(log10(range / 4)));

	return range / step >= 20 ? 5 * step : range / step >= 8 ? 2 * step : step;
}

static void time_axis(const struct plot *p)
{
	double step = step_of((double)p->end_ns), t, x;
	int i, nr = (int)((double)p->end_ns * 1.0001 / step);
	char label[FMT_NS_LEN];

	for (i = 0; i <= nr; i++) {
		t = i * step;
		x = x_of_time(p, t);
		put_line("grid", x, TOP, x, BOTTOM);
		put_text(x, BOTTOM + 18, "middle",
			 i ? format_ns(label, (__u64)(t + 0.5)) : "0");
	}
	put_text((LEFT + RIGHT) / 2.0, BOTTOM + 40, "middle", "time since the begin of the run");
}

static void axes(const struct plot *p)
{
	char label[FMT_NS_LEN];
	int i;

	time_axis(p);
	for (i = (int)p->low; i <= p->high; i++) {
		__u64 ns = (__u64)(pow(10, i) + 0.5);

		put_line("grid", LEFT, y_of_late(p, ns), RIGHT, y_of_late(p, ns));
		put_text(LEFT - 8, y_of_late(p, ns) + 4, "end", format_ns(label, ns));
		put_line("grid", x_of_late(p, ns), TOP2, x_of_late(p, ns), BOTTOM2);
		put_text(x_of_late(p, ns), BOTTOM2 + 18, "middle", label);
	}
	for (i = 0; i <= 100; i += 25) {
		put_line("grid", LEFT, y_of_share(i / 100.0), RIGHT, y_of_share(i / 100.0));
		snprintf(label, sizeof(label), "%d %%", i);
		put_text(LEFT - 8, y_of_share(i / 100.0) + 4, "end", label);
	}
	put_line("axis", LEFT, BOTTOM, RIGHT, BOTTOM);
	put_line("axis", LEFT, TOP, LEFT, BOTTOM);
	put_line("axis", LEFT, BOTTOM2, RIGHT, BOTTOM2);
	put_line("axis", LEFT, TOP2, LEFT, BOTTOM2);
	put_text(LEFT, TOP - 10, "start", "lateness (logarithmic)");
	put_text(LEFT, TOP2 - 10, "start", "firings that were at most so late");
	put_text((LEFT + RIGHT) / 2.0, BOTTOM2 + 40, "middle", "lateness (logarithmic)");
}

static void put_tick(const struct plot *p)
{
	char label[FMT_NS_LEN], name[FMT_NS_LEN + 8];

	if (!p->tick_ns || log10((double)p->tick_ns) > p->high ||
	    log10((double)p->tick_ns) < p->low)
		return;
	put_line("tick", LEFT, y_of_late(p, p->tick_ns), RIGHT, y_of_late(p, p->tick_ns));
	put_line("tick", x_of_late(p, p->tick_ns), TOP2, x_of_late(p, p->tick_ns), BOTTOM2);
	snprintf(name, sizeof(name), "tick, %.30s", format_ns(label, p->tick_ns));
	put_line("tick", RIGHT - 130, TOP - 14, RIGHT - 100, TOP - 14);
	put_text(RIGHT - 94, TOP - 10, "start", name);
}

static void dot(double x, double y)
{
	printf("<circle class=\"median\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", x, y);
}

static void points(const struct plot *p)
{
	size_t i;

	for (i = 0; i < p->nr; i++)
		dot(x_of_time(p, (double)p->v[i].at_ns), y_of_late(p, p->v[i].late_ns));
	dot(RIGHT - 250, TOP - 14);
	put_text(RIGHT - 242, TOP - 10, "start", "a firing");
}

static int ranges(const struct plot *p)
{
	struct column columns[COLUMNS];
	double x;
	int i;

	if (make_columns(p, columns, COLUMNS))
		return -1;
	for (i = 0; i < COLUMNS; i++) {
		if (!columns[i].nr)
			continue;
		x = x_of_time(p, (double)p->end_ns * (i + 0.5) / COLUMNS);
		put_line("range", x, y_of_late(p, columns[i].min_ns) + 1, x,
			 y_of_late(p, columns[i].max_ns) - 1);
		dot(x, y_of_late(p, columns[i].median_ns));
	}
	put_line("range", RIGHT - 335, TOP - 19, RIGHT - 335, TOP - 8);
	put_text(RIGHT - 327, TOP - 10, "start", "least to most");
	dot(RIGHT - 210, TOP - 14);
	put_text(RIGHT - 202, TOP - 10, "start", "median");
	return 0;
}

static void shares(const struct plot *p)
{
	size_t i, nr = p->nr < STEPS ? p->nr : STEPS, rank;
	double y = y_of_share(0);

	printf("<path class=\"share\" d=\"M%.1f %.1f", x_of_late(p, p->late[0]), y);
	for (i = 1; i <= nr; i++) {
		rank = i * p->nr / nr;
		y = y_of_share((double)rank / (double)p->nr);
		printf("H%.1fV%.1f", x_of_late(p, p->late[rank - 1]), y);
	}
	printf("H%d\"/>\n", RIGHT);
}

int print_svg(const struct plot *p)
{
	head(p);
	axes(p);
	put_tick(p);
	if (p->nr <= POINTS_MAX) {
		points(p);
	} else if (ranges(p)) {
		perror("twheelctl");
		return EXIT_DEVICE;
	}
	shares(p);
	puts("</svg>");
	return EXIT_RUN_OK;
}

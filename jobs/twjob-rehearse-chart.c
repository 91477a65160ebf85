// SPDX-License-Identifier: GPL-2.0
/*
 * A rehearsal as a chart: bars for parts of the time, as high as the busiest minute (or second) in
 * each. In a terminal, and as SVG.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "twjob-rehearse.h"

#define MINUTE_US	INT64_C(60000000)
#define HOUR_US		(60 * MINUTE_US)
#define DAY_US		(24 * HOUR_US)

#define ROWS		8
#define AXIS		9	/* columns of the numbers before it, and the axis */
#define LABEL		12	/* columns from one to the next */

/* Of SVG, in its own units */
#define WIDTH		960
#define PLOT_LEFT	80
#define PLOT_WIDTH	850
#define PLOT_HEIGHT	200
#define PANEL_HEIGHT	290
#define TOP		70

void chart_init(struct chart *c, const struct rehearsal *r, uint32_t most_bars)
{
	static const int minutes[] = {
		1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2880, 4320, 7200,
		10080, 14400, 20160, 28800, 43200, 64800, 86400, 129600, 259200,
	};
	uint32_t span = minutes[ARRAY_SIZE(minutes) - 1], i;

	for (i = 0; i < ARRAY_SIZE(minutes); i++) {
		span = minutes[i];
		if (r->nr_minutes <= span * most_bars)
			break;
	}
	*c = (struct chart){ .span_us = span * MINUTE_US };
	c->nr = (r->nr_minutes + span - 1) / span;
	c->minute = xcalloc(c->nr, sizeof(*c->minute));
	c->second = xcalloc(c->nr, sizeof(*c->second));
	for (i = 0; i < r->nr_minutes; i++) {
		uint32_t *minute = &c->minute[i / span], *second = &c->second[i / span];

		*minute = r->minute[i] > *minute ? r->minute[i] : *minute;
		*second = r->peak[i] > *second ? r->peak[i] : *second;
		c->most_minute = *minute > c->most_minute ? *minute : c->most_minute;
		c->most_second = *second > c->most_second ? *second : c->most_second;
	}
}

void chart_free(struct chart *c)
{
	free(c->minute);
	free(c->second);
}

void chart_label(const struct rehearsal *r, const struct zone *z, int64_t at_us,
		 char text[STAMP_TEXT])
{
	int64_t all = r->to_us - r->from_us;
	char whole[STAMP_TEXT];

	stamp(z, at_us, whole);
	if (all <= 2 * DAY_US)
		snprintf(text, STAMP_TEXT, "%.5s", whole + 11);		/* 14:30 */
	else if (all <= 400 * DAY_US)
		snprintf(text, STAMP_TEXT, "%.5s", whole + 5);		/* 12-24 */
	else
		snprintf(text, STAMP_TEXT, "%.7s", whole);		/* 2027-12 */
}

/* --------------------------------------------------------------------- terminal */

/* What of a bar is in that row, 0 at the bottom, as eighths. None of it is only where none is. */
static uint32_t eighths(uint32_t nr, uint32_t most, uint32_t row)
{
	uint64_t all = ((uint64_t)nr * ROWS * 8 + most - 1) / most, below = row * 8;

	return all <= below ? 0 : all - below > 8 ? 8 : (uint32_t)(all - below);
}

static void print_bars(const struct chart *c, const struct view *view, uint32_t row)
{
	static const char *const blocks[] = {
		" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█",
	};
	static const char *const ascii[] = { " ", ".", ".", ".", "#", "#", "#", "#", "#" };
	struct buf b = {};
	uint32_t i;

	for (i = 0; i < c->nr; i++)
		buf_puts(&b, (view->utf8 ? blocks : ascii)[eighths(c->minute[i], c->most_minute,
								   row)]);
	while (b.len && b.data[b.len - 1] == ' ')
		b.data[--b.len] = '\0';
	printf("%s%s%s\n", view->colour ? "\033[36m" : "", b.data, view->colour ? "\033[0m" : "");
	buf_free(&b);
}

static void print_labels(const struct rehearsal *r, const struct chart *c,
			 const struct view *view)
{
	char line[256], text[STAMP_TEXT];
	const char *t;
	uint32_t i;

	memset(line, ' ', sizeof(line));
	for (i = 0; i < c->nr; i += LABEL) {
		chart_label(r, view->zone, r->from_us + i * c->span_us, text);
		if (i + strlen(text) <= (uint32_t)view->width - AXIS)
			for (t = text; *t; t++)
				line[AXIS + i + (t - text)] = *t;
	}
	for (i = sizeof(line) - 1; line[i] == ' '; i--)
		;
	printf("%.*s\n", (int)i + 1, line);
}

void chart_print(const struct rehearsal *r, const struct view *view)
{
	char span[STAMP_TEXT], number[16];
	struct chart c;
	uint32_t row, i;

	chart_init(&c, r, view->width - AXIS);
	if (c.span_us == MINUTE_US)
		puts("\nFires in each minute");
	else
		printf("\nFires in the busiest minute of each %s\n", span_text(c.span_us, span));
	for (row = ROWS; row--;) {
		snprintf(number, sizeof(number), "%s", "");
		if (row == ROWS - 1)
			snprintf(number, sizeof(number), "%u", c.most_minute);
		printf("%*s %s", AXIS - 2, number, view->utf8 ? "│" : "|");
		print_bars(&c, view, row);
	}
	printf("%*s %s", AXIS - 2, "0", view->utf8 ? "└" : "+");
	for (i = 0; i < c.nr; i++)
		fputs(!view->utf8 ? "-" : i % LABEL ? "─" : "┴", stdout);
	putchar('\n');
	print_labels(r, &c, view);
	chart_free(&c);
}

/* -------------------------------------------------------------------------- SVG */

/* Colours that are told apart by those who do not see all of them, on both backgrounds. */
static const char style[] =
	"<style>\n"
	"svg { background: #ffffff; font: 13px sans-serif }\n"
	"text { fill: #202020 } .title { font-size: 17px; font-weight: bold }\n"
	".grid { stroke: #d0d0d0 } .axis { stroke: #202020 }\n"
	".bar { fill: #0072b2 } .clocks { stroke: #d55e00; stroke-dasharray: 5 4; stroke-width: 1.5 }\n"
	".of-clocks { fill: #a84a00; font-size: 11px }\n"
	"@media (prefers-color-scheme: dark) {\n"
	"svg { background: #181818 } text { fill: #e8e8e8 }\n"
	".grid { stroke: #484848 } .axis { stroke: #e8e8e8 }\n"
	".bar { fill: #56b4e9 } .clocks { stroke: #e69f00 } .of-clocks { fill: #e69f00 }\n"
	"}\n"
	"</style>\n";

/* The next of 1, 2, 5, 10 and so on that four lines are enough for. */
static uint32_t grid_step(uint32_t most)
{
	uint64_t step = 1;
	int i;

	for (i = 0; step * 4 < most; i++)
		step = i % 3 == 1 ? step / 2 * 5 : step * 2;
	return (uint32_t)step;
}

static double x_of(const struct rehearsal *r, int64_t at_us)
{
	return PLOT_LEFT + (double)(at_us - r->from_us) * PLOT_WIDTH /
			   (double)(r->to_us - r->from_us);
}

static void svg_grid(struct buf *b, uint32_t high, uint32_t step, int bottom)
{
	uint32_t value;

	for (value = 0; value <= high; value += step) {
		double y = bottom - (double)value * PLOT_HEIGHT / high;

		buf_printf(b, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			   value ? "grid" : "axis", PLOT_LEFT, PLOT_LEFT + PLOT_WIDTH, y, y);
		buf_printf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%u</text>\n",
			   PLOT_LEFT - 8, y + 4, value);
	}
}

static void svg_bars(struct buf *b, const struct rehearsal *r, const struct chart *c,
		     const uint32_t *values, uint32_t high, int bottom)
{
	uint32_t i;

	for (i = 0; i < c->nr; i++) {
		int64_t begin = r->from_us + i * c->span_us, end = begin + c->span_us;
		double x = x_of(r, begin), height = (double)values[i] * PLOT_HEIGHT / high;

		end = end < r->to_us ? end : r->to_us;
		if (values[i])
			buf_printf(b, "<rect class=\"bar\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
				   "height=\"%.2f\"/>\n", x, bottom - height,
				   (x_of(r, end) - x) * 0.9, height);
	}
}

static void svg_labels(struct buf *b, const struct rehearsal *r, const struct chart *c,
		       const struct view *view, int bottom)
{
	uint32_t every = c->nr / 10 + 1, i;
	char text[STAMP_TEXT];

	for (i = 0; i < c->nr; i += every) {
		int64_t at_us = r->from_us + i * c->span_us;
		double x = x_of(r, at_us);

		chart_label(r, view->zone, at_us, text);
		buf_printf(b, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
			   "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			   x, x, bottom, bottom + 5, x, bottom + 20, text);
	}
}

/* Lines where clocks are set, as long as they can be told apart. */
static void svg_clocks(struct buf *b, const struct rehearsal *r, int bottom)
{
	struct zone_change *v;
	uint32_t i, nr = zone_changes(r, &v);

	for (i = 0; i < nr && nr <= 24; i++) {
		double x = x_of(r, v[i].change.at_us);
		bool right = x > PLOT_LEFT + PLOT_WIDTH * 0.75;

		buf_printf(b, "<line class=\"clocks\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
			   "<text class=\"of-clocks\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">"
			   "clocks: %s</text>\n", x, x, bottom - PLOT_HEIGHT, bottom,
			   right ? x - 4 : x + 4, bottom - PLOT_HEIGHT + 12 + 13 * (int)(i % 4),
			   right ? "end" : "start", v[i].tz);
	}
	free(v);
}

static void svg_panel(struct buf *b, const struct rehearsal *r, const struct chart *c,
		      const struct view *view, const char *what, int top)
{
	bool seconds = !strcmp(what, "second");
	uint32_t most = seconds ? c->most_second : c->most_minute, step = grid_step(most);
	uint32_t high = (most + step - 1) / step * step;
	int bottom = top + PLOT_HEIGHT;
	char span[STAMP_TEXT];

	span_text(c->span_us, span);
	high = high ?: 1;
	buf_printf(b, "<text x=\"%d\" y=\"%d\">Busiest %s of each %s</text>\n", PLOT_LEFT, top - 12,
		   what, span);
	svg_grid(b, high, step, bottom);
	svg_bars(b, r, c, seconds ? c->second : c->minute, high, bottom);
	svg_clocks(b, r, bottom);
	svg_labels(b, r, c, view, bottom);
	buf_printf(b, "<text transform=\"translate(20,%d) rotate(-90)\" text-anchor=\"middle\">"
		   "fires in a %s</text>\n", top + PLOT_HEIGHT / 2, what);
	buf_printf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s, %s</text>\n",
		   PLOT_LEFT + PLOT_WIDTH / 2, bottom + 42,
		   r->to_us - r->from_us <= 2 * DAY_US ? "time of day" : "date", view->tz);
}

static void svg_all(struct buf *b, const struct rehearsal *r, const struct view *view)
{
	char from[STAMP_TEXT], to[STAMP_TEXT];
	int height = TOP + 2 * PANEL_HEIGHT;
	struct chart c;

	stamp(view->zone, r->from_us, from);
	stamp(view->zone, r->to_us, to);
	chart_init(&c, r, 240);
	buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		   "width=\"%d\" height=\"%d\" role=\"img\">\n", WIDTH, height, WIDTH, height);
	buf_printf(b, "<title>%llu fires of %u schedules from %s to %s</title>\n",
		   (unsigned long long)r->fires, r->nr, from, to);
	buf_puts(b, style);
	buf_printf(b, "<rect width=\"%d\" height=\"%d\" fill=\"none\"/>\n", WIDTH, height);
	buf_printf(b, "<text class=\"title\" x=\"%d\" y=\"28\">%llu fires of %u schedules, "
		   "%.16s to %.16s</text>\n", PLOT_LEFT, (unsigned long long)r->fires, r->nr, from,
		   to);
	svg_panel(b, r, &c, view, "minute", TOP);
	svg_panel(b, r, &c, view, "second", TOP + PANEL_HEIGHT);
	buf_puts(b, "</svg>\n");
	chart_free(&c);
}

void chart_svg(const struct rehearsal *r, const struct view *view, const char *path)
{
	FILE *out = fopen(path, "we");
	struct buf b = {};
	bool good;

	if (!out)
		die(STATUS_FAILED, "%s: %s", path, strerror(errno));
	svg_all(&b, r, view);
	good = fwrite(b.data, 1, b.len, out) == b.len;
	if (fclose(out) || !good)
		die(STATUS_FAILED, "%s: %s", path, strerror(errno));
	buf_free(&b);
}

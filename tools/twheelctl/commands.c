// SPDX-License-Identifier: GPL-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "device.h"
#include "report.h"

int usage_error(const char *what, const char *why, const char *text)
{
	fprintf(stderr, "twheelctl: %s: %s: '%s'\n", what, why, text);
	return EXIT_USAGE;
}

/* ---- info ---- */

static const char * const feature_names[] = {
	"submit", "drain", "list", "stats", "slack", "burst", "skip",
	"clock-set", "moderation",
};

#define NR_FEATURES	ARRAY_SIZE(feature_names)

static void print_info_text(const struct twheel_info *info)
{
	char a[FMT_NS_LEN], b[FMT_NS_LEN], c[FMT_NS_LEN];
	bool none = true;
	size_t i;

	printf("clock      %s (now %llu.%09llu s)\n", clock_name(info->clockid),
	       info->now_ns / NSEC_PER_SEC, info->now_ns % NSEC_PER_SEC);
	printf("tick       %s (%llu ns; %s to %s can be had)\n",
	       format_ns(a, info->tick_ns), info->tick_ns,
	       format_ns(b, info->tick_ns_min),
	       format_ns(c, info->tick_ns_max));
	printf("capacity   %u timers (at most %u)\n", info->capacity,
	       info->capacity_max);
	printf("features  ");
	for (i = 0; i < NR_FEATURES; i++) {
		if (!(info->features & 1ULL << i))
			continue;
		printf(" %s", feature_names[i]);
		none = false;
	}
	puts(none ? " none of the optional ones" : "");
	printf("structs    info %u, setup %u, op %u, event %u, stats %u bytes\n",
	       info->size, info->setup_size, info->op_size, info->event_size,
	       info->stats_size);
}

static void print_info_json(const struct twheel_info *info)
{
	const char *comma = "";
	size_t i;

	printf("{\"type\":\"info\",\"clock\":\"%s\",\"now_ns\":%llu",
	       clock_name(info->clockid), info->now_ns);
	printf(",\"tick_ns\":%llu,\"tick_ns_min\":%llu,\"tick_ns_max\":%llu",
	       info->tick_ns, info->tick_ns_min, info->tick_ns_max);
	printf(",\"capacity\":%u,\"capacity_max\":%u,\"features\":[",
	       info->capacity, info->capacity_max);
	for (i = 0; i < NR_FEATURES; i++) {
		if (!(info->features & 1ULL << i))
			continue;
		printf("%s\"%s\"", comma, feature_names[i]);
		comma = ",";
	}
	printf("],\"info_size\":%u,\"setup_size\":%u,\"op_size\":%u",
	       info->size, info->setup_size, info->op_size);
	printf(",\"event_size\":%u,\"stats_size\":%u}\n", info->event_size,
	       info->stats_size);
}

int show_info(const struct options *opt)
{
	int fd = device_open(opt->device), ret = EXIT_DEVICE;
	struct twheel_info info;

	if (fd < 0)
		return EXIT_DEVICE;
	if (!device_info(fd, &info)) {
		if (opt->json)
			print_info_json(&info);
		else
			print_info_text(&info);
		ret = EXIT_RUN_OK;
	}
	close(fd);
	return ret;
}

/* ---- what arm and run share ---- */

static void print_cron(const struct timer_spec *spec, bool json)
{
	const char *tz = spec->cron->tz ?: "UTC";

	if (!json) {
		printf("line %u: cron %s tz %s count %u label %s\n", spec->line,
		       spec->cron->text, tz, spec->count, spec->label);
		return;
	}
	printf("{\"type\":\"timer\",\"line\":%u,\"cron\":", spec->line);
	print_json_string(spec->cron->text);
	printf(",\"tz\":\"%s\",\"count\":%u,\"label\":", tz, spec->count);
	print_json_string(spec->label);
	puts("}");
}

static void print_plan(const struct timer_spec *spec, bool json)
{
	if (spec->cron) {
		print_cron(spec, json);
		return;
	}
	if (!json) {
		printf("line %u: %s %llu every %llu count %u label %s\n",
		       spec->line, spec->at ? "at" : "delay", spec->when_ns,
		       spec->every_ns, spec->count, spec->label);
		return;
	}
	printf("{\"type\":\"timer\",\"line\":%u,\"%s\":%llu", spec->line,
	       spec->at ? "at_ns" : "delay_ns", spec->when_ns);
	printf(",\"every_ns\":%llu,\"count\":%u,\"label\":", spec->every_ns,
	       spec->count);
	print_json_string(spec->label);
	puts("}");
}

/* What is right line by line can still be wrong for the clock */
static void check_clock(struct timer_file *file, const struct options *opt)
{
	bool manual = opt->clockid == TWHEEL_CLOCK_MANUAL;
	size_t i;

	for (i = 0; i < file->nr; i++) {
		const struct timer_spec *spec = &file->v[i];

		if (spec->at && opt->clockid != CLOCK_REALTIME)
			complain(file, spec->line,
				 "an @ time needs the realtime clock",
				 spec->label);
		if (spec->cron && !manual && opt->clockid != CLOCK_REALTIME)
			complain(file, spec->line,
				 "cron needs the realtime clock, or the manual one",
				 spec->label);
		if (manual && !opt->for_ns && (spec->every_ns || spec->cron) &&
		    !spec->count)
			complain(file, spec->line,
				 "would never end on the manual clock, give a count or --for",
				 spec->label);
	}
}

static int do_timers(struct options *opt, struct timer_file *file)
{
	size_t i;

	for (i = 0; i < file->nr && opt->clockid < 0; i++)
		if (file->v[i].at || file->v[i].cron)
			opt->clockid = CLOCK_REALTIME;
	if (opt->clockid < 0)
		opt->clockid = CLOCK_MONOTONIC;
	check_clock(file, opt);
	if (file->bad) {
		fprintf(stderr, "twheelctl: %u bad line%s, nothing is armed\n",
			file->bad, file->bad > 1 ? "s" : "");
		return EXIT_USAGE;
	}
	if (opt->capacity && opt->capacity < file->nr) {
		fprintf(stderr, "twheelctl: --capacity %u is too small for %zu timers\n",
			opt->capacity, file->nr);
		return EXIT_USAGE;
	}
	if (!opt->dry_run)
		return run_timers(opt, file);
	for (i = 0; i < file->nr; i++)
		print_plan(&file->v[i], opt->json);
	return EXIT_RUN_OK;
}

/* ---- arm ---- */

int arm_one(struct options *opt, const char *delay)
{
	struct timer_spec spec = {
		.every_ns = opt->every_ns,
		.count = opt->count,
		.line = 1,
		.label = (char *)opt->label,
	};
	struct timer_file file = { .name = "arm", .v = &spec, .nr = 1 };
	const char *err = parse_when(delay, &spec);

	if (err)
		return usage_error("arm", err, delay);
	if (spec.count && !spec.every_ns)
		return usage_error("arm", "--count needs --every", delay);
	opt->brief = !opt->json && !opt->quiet;
	return do_timers(opt, &file);
}

/* ---- run ---- */

/* --from and --limit cut by the last expiry, so that a pass does end */
static bool is_wanted(const struct timer_spec *spec, const struct options *opt,
		      __u64 wall)
{
	__u64 last = spec->when_ns;

	if (spec->at)
		last = last > wall ? last - wall : 0;
	last = last_expiry(spec, last);
	return !(opt->has_from && last <= opt->from_ns) &&
	       !(opt->has_limit && last > opt->limit_ns);
}

static void select_timers(struct timer_file *file, const struct options *opt)
{
	__u64 wall = time(NULL) * NSEC_PER_SEC;
	size_t i, nr = 0;

	for (i = 0; i < file->nr; i++) {
		if (is_wanted(&file->v[i], opt, wall))
			file->v[nr++] = file->v[i];
		else
			free_timer(&file->v[i]);
	}
	file->left_out = file->nr - nr;
	file->nr = nr;
}

int run_file(struct options *opt, const char *path)
{
	struct timer_file file = { 0 };
	int err = load_file(path, &file), ret = EXIT_USAGE;
	size_t i;

	if (err) {
		fprintf(stderr, "twheelctl: %s: %s\n", path, strerror(-err));
	} else {
		select_timers(&file, opt);
		ret = do_timers(opt, &file);
	}
	for (i = 0; i < file.nr; i++)
		free_timer(&file.v[i]);
	free(file.v);
	return ret;
}

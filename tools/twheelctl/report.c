// SPDX-License-Identifier: GPL-2.0
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "report.h"

#define BAR_WIDTH	40
/* All that is below 2^10 ns counts as one octave, number 0 */
#define OCTAVE_MIN	11

/* Three digits below a minute, from there on the two largest units */
const char *format_ns(char buf[static FMT_NS_LEN], __u64 ns)
{
	static const struct {
		char name;
		__u64 sec;
	} units[] = { { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 } };
	__u64 sec = ns / NSEC_PER_SEC, rest;
	int i = 0, len;

	if (ns < 1000) {
		snprintf(buf, FMT_NS_LEN, "%lluns", ns);
	} else if (ns < 999500) {
		snprintf(buf, FMT_NS_LEN, "%.3gus", ns / 1e3);
	} else if (ns < 999500000) {
		snprintf(buf, FMT_NS_LEN, "%.3gms", ns / 1e6);
	} else if (sec < 60) {
		snprintf(buf, FMT_NS_LEN, "%.3gs", ns / 1e9);
	} else {
		while (sec < units[i].sec)
			i++;
		len = snprintf(buf, FMT_NS_LEN, "%llu%c", sec / units[i].sec,
			       units[i].name);
		rest = sec % units[i].sec / units[i + 1].sec;
		if (rest)
			snprintf(buf + len, FMT_NS_LEN - len, "%llu%c", rest,
				 units[i + 1].name);
	}
	return buf;
}

const char *clock_name(__u32 clockid)
{
	switch (clockid) {
	case CLOCK_REALTIME:
		return "realtime";
	case CLOCK_MONOTONIC:
		return "monotonic";
	case CLOCK_BOOTTIME:
		return "boottime";
	case CLOCK_TAI:
		return "tai";
	case TWHEEL_CLOCK_MANUAL:
		return "manual";
	}
	return "unknown";
}

/* check_label() has seen to it that nothing else needs an escape */
void print_json_string(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		putchar(*s);
	}
	putchar('"');
}

/* Position of the highest bit, from 1 on; 0 for 0 */
static int bit_length(__u64 val)
{
	return val ? 64 - __builtin_clzll(val) : 0;
}

static size_t bucket_of(__u64 val)
{
	int shift = bit_length(val / LATE_STEPS);

	if (!shift)
		return val;
	return (shift * LATE_STEPS) + ((val >> (shift - 1)) % LATE_STEPS);
}

/* The largest value that falls into @bucket */
static __u64 bucket_top(size_t bucket)
{
	int shift = bucket / LATE_STEPS - 1;

	if (shift < 0)
		return bucket;
	return ((bucket % LATE_STEPS + LATE_STEPS + 1ULL) << shift) - 1;
}

static __u64 lateness(const struct twheel_event *ev)
{
	return ev->fired_ns < ev->expires_ns ? 0 : ev->fired_ns - ev->expires_ns;
}

void count_event(struct report *r, const struct twheel_event *ev)
{
	__u64 late = lateness(ev);

	r->records++;
	r->fired += 1ULL + ev->overrun;
	r->early += ev->fired_ns < ev->expires_ns;
	r->late[bucket_of(late)]++;
	if (late > r->late_max)
		r->late_max = late;
}

static __u64 percentile(const struct report *r, unsigned int percent)
{
	__u64 rank = (r->records * percent + 99) / 100, seen = 0;
	size_t i;

	for (i = 0; i < LATE_BUCKETS; i++) {
		seen += r->late[i];
		if (seen >= rank)
			break;
	}
	return bucket_top(i) < r->late_max ? bucket_top(i) : r->late_max;
}

static void print_event_json(const struct timer_spec *spec,
			     const struct twheel_event *ev, __u64 base)
{
	printf("{\"type\":\"fired\",\"line\":%u,\"label\":", spec->line);
	print_json_string(spec->label);
	printf(",\"at_ns\":%lld,\"expires_ns\":%llu,\"fired_ns\":%llu",
	       (long long)(ev->fired_ns - base), ev->expires_ns, ev->fired_ns);
	printf(",\"late_ns\":%lld,\"overrun\":%u,\"more\":%s}\n",
	       (long long)(ev->fired_ns - ev->expires_ns), ev->overrun,
	       ev->flags & TWHEEL_EV_MORE ? "true" : "false");
}

void print_event(const struct timer_spec *spec, const struct twheel_event *ev,
		 __u64 base, bool json)
{
	bool early = ev->fired_ns < ev->expires_ns;
	bool before = ev->fired_ns < base;
	__u64 off = early ? ev->expires_ns - ev->fired_ns : lateness(ev);
	__u64 at = before ? base - ev->fired_ns : ev->fired_ns - base;
	char when[32];

	if (json) {
		print_event_json(spec, ev, base);
		return;
	}
	snprintf(when, sizeof(when), "%c%llu.%06llus", before ? '-' : '+',
		 at / NSEC_PER_SEC, at % NSEC_PER_SEC / 1000);
	printf("%16s  %s %8.3fms  %s", when, early ? "EARLY" : "late ",
	       off / 1e6, spec->label);
	if (ev->overrun)
		printf("  x%llu", 1ULL + ev->overrun);
	putchar('\n');
}

static void sum_octaves(const struct report *r, __u64 octaves[static 65])
{
	size_t i;

	memset(octaves, 0, 65 * sizeof(*octaves));
	for (i = 0; i < LATE_BUCKETS; i++) {
		int octave = bit_length(bucket_top(i));

		octaves[octave < OCTAVE_MIN ? 0 : octave] += r->late[i];
	}
}

static void print_bar(int octave, __u64 nr, __u64 most)
{
	static const char hashes[BAR_WIDTH + 1] =
		"########################################";
	int len = (nr * BAR_WIDTH + most - 1) / most;
	char from[FMT_NS_LEN], to[FMT_NS_LEN];

	printf("  %7s .. %-7s |%-*.*s| %llu\n",
	       format_ns(from, octave ? 1ULL << (octave - 1) : 0),
	       format_ns(to, octave == 64 ? ~0ULL :
			 1ULL << (octave ? octave : OCTAVE_MIN - 1)),
	       BAR_WIDTH, len, hashes, nr);
}

static void print_histogram(const struct report *r)
{
	__u64 octaves[65], most = 0;
	int i, first = 64, last = 0;

	sum_octaves(r, octaves);
	for (i = 0; i <= 64; i++) {
		if (!octaves[i])
			continue;
		if (i < first)
			first = i;
		last = i;
		if (octaves[i] > most)
			most = octaves[i];
	}
	for (i = first; i <= last; i++)
		if (!i || i >= OCTAVE_MIN)
			print_bar(i, octaves[i], most);
}

static void print_lateness(const struct report *r)
{
	char a[FMT_NS_LEN], b[FMT_NS_LEN], c[FMT_NS_LEN], d[FMT_NS_LEN];

	if (!r->records)
		return;
	printf("lateness   median %s  p90 %s  p99 %s  max %s",
	       format_ns(a, percentile(r, 50)), format_ns(b, percentile(r, 90)),
	       format_ns(c, percentile(r, 99)), format_ns(d, r->late_max));
	printf("  (tick %s)\n", format_ns(a, r->tick_ns));
	print_histogram(r);
}

static void print_wakeups(const struct report *r)
{
	__u64 ticks = r->elapsed_ns / NSEC_PER_MSEC;

	if (!r->has_wakeups)
		return;
	printf("wake-ups   %llu of %llu that a 1 ms tick would take",
	       r->wakeups, ticks);
	if (ticks)
		printf(" (%.2g %%)", 100.0 * r->wakeups / ticks);
	putchar('\n');
}

static void print_summary_text(const struct report *r)
{
	char a[FMT_NS_LEN], b[FMT_NS_LEN];

	printf("armed      %llu", r->armed);
	if (r->left_out)
		printf("  (%llu left out by --from or --limit)", r->left_out);
	printf("\nfired      %llu", r->fired);
	if (r->fired != r->records)
		printf("  (in %llu records)", r->records);
	printf("\nlost       %llu\nearly      %llu\ndoubled    %llu\n", r->lost, r->early,
	       r->doubled);
	if (r->left)
		printf("left       %llu  (stopped before they were done)\n",
		       r->left);
	if (r->has_commands)
		printf("commands   %llu  (%llu failed, %llu still running)\n", r->commands,
		       r->commands_failed, r->commands_running);
	print_lateness(r);
	printf("elapsed    %s", format_ns(a, r->elapsed_ns));
	if (r->virtual)
		printf(" of virtual time in %s", format_ns(b, r->real_ns));
	putchar('\n');
	print_wakeups(r);
}

static void print_summary_json(const struct report *r)
{
	__u64 octaves[65];
	const char *comma = "";
	int i;

	printf("{\"type\":\"summary\",\"clock\":\"%s\",\"tick_ns\":%llu",
	       r->clock, r->tick_ns);
	printf(",\"armed\":%llu,\"left_out\":%llu,\"records\":%llu,\"fired\":%llu",
	       r->armed, r->left_out, r->records, r->fired);
	printf(",\"lost\":%llu,\"doubled\":%llu,\"early\":%llu,\"left\":%llu",
	       r->lost, r->doubled, r->early, r->left);
	printf(",\"lateness_ns\":{\"median\":%llu,\"p90\":%llu,\"p99\":%llu",
	       percentile(r, 50), percentile(r, 90), percentile(r, 99));
	printf(",\"max\":%llu},\"histogram\":[", r->late_max);
	sum_octaves(r, octaves);
	for (i = 0; i <= 64; i++) {
		if (!octaves[i])
			continue;
		printf("%s{\"from_ns\":%llu,\"records\":%llu}", comma,
		       i ? 1ULL << (i - 1) : 0, octaves[i]);
		comma = ",";
	}
	printf("],\"elapsed_ns\":%llu,\"real_ns\":%llu,\"wakeups\":",
	       r->elapsed_ns, r->real_ns);
	if (r->has_wakeups)
		printf("%llu", r->wakeups);
	else
		printf("null");
	printf(",\"tick_wakeups\":%llu", r->elapsed_ns / NSEC_PER_MSEC);
	if (r->has_commands)
		printf(",\"commands\":%llu,\"commands_failed\":%llu,\"commands_running\":%llu",
		       r->commands, r->commands_failed, r->commands_running);
	puts("}");
}

void print_summary(const struct report *r, bool json)
{
	if (json)
		print_summary_json(r);
	else
		print_summary_text(r);
}

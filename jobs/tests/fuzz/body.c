// SPDX-License-Identifier: GPL-2.0
/*
 * Any bytes as what a request says. The first one chooses as what they are read. What is taken
 * has to be within its bounds, and what is refused has to say why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "parse.h"

#define CHECK(what) check(what, #what)

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

static void check_bad(const struct bad *bad)
{
	struct buf text = {};

	CHECK(bad->status >= 400 && bad->status < 500);
	CHECK(bad->code && *bad->code && *bad->message);
	CHECK(!*bad->field || text_is_good(bad->field, strlen(bad->field), 1, 127));
	json_add(&text, bad->message, strlen(bad->message));
	CHECK(*text.data == '"');
	buf_free(&text);
}

static void check_text(const char *text)
{
	CHECK(!text || text_is_good(text, strlen(text), 1, MAX_TEXT));
}

/* As the server would tell the time. */
static void check_time(int64_t us)
{
	char text[TIME_TEXT];
	int64_t again;

	format_time(us, text);
	/* An offset from Greenwich can bring it into the year 10000. */
	CHECK(strlen(text) == 28 || (parse_time(text, strlen(text), &again) && again == us));
}

static void check_jobs(const struct new_jobs *jobs)
{
	CHECK(jobs->nr >= 1 && jobs->nr <= MAX_JOBS);
	for (unsigned int i = 0; i < jobs->nr; i++) {
		const struct new_job *job = &jobs->job[i];

		CHECK(job->service);
		check_text(job->service);
		check_text(job->key);
		check_text(job->order_key);
		check_text(job->tag);
		CHECK(job->slack_ms >= 0 && job->slack_ms <= 3600000);
		CHECK(job->when.delay_ms >= 0 && job->when.delay_ms <= MAX_DELAY_MS);
		CHECK(job->payload.len <= MAX_PAYLOAD);
		if (job->when.has_at)
			check_time(job->when.at_us);
	}
}

static bool read_jobs(const char *text, size_t len, struct bad *bad)
{
	struct new_jobs jobs = {};
	bool good = parse_jobs(text, len, &jobs, bad);

	if (good)
		check_jobs(&jobs);
	CHECK(good || !jobs.job);
	new_jobs_free(&jobs);
	return good;
}

/* Lines are values of parameters. */
static bool read_raw(char *text, size_t len, struct bad *bad)
{
	static const char *const names[] = { "service", "at", "delay_ms", "key", "slack_ms", "x" };
	struct new_jobs jobs = {};
	struct arg args[6];
	unsigned int nr = 0;
	bool good;

	while (nr < 6 && len) {
		char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		args[nr] = (struct arg){ names[nr], text, n };
		nr++;
		text += n + !!end;
		len -= n + !!end;
	}
	good = parse_raw_job(args, nr, text, len, &jobs, bad);
	if (good)
		check_jobs(&jobs);
	new_jobs_free(&jobs);
	return good;
}

static bool read_service(const char *text, size_t len, struct bad *bad)
{
	struct service_spec spec = {};
	bool good = parse_service(text, len, &spec, bad);

	if (good && spec.given >> SERVICE_RATE & 1)
		CHECK(spec.rate_per_s >= 0 && spec.rate_per_s <= 1e6);
	CHECK(good || !spec.kind);
	service_spec_free(&spec);
	return good;
}

/* What is shown of a payload is read as the same. */
static void check_payload(const struct buf *payload)
{
	struct schedule_spec spec = {};
	struct buf text = {};
	struct bad bad;

	buf_puts(&text, "{\"service\":\"a\"");
	json_add_payload(&text, payload->data, payload->len);
	buf_puts(&text, "}");
	CHECK(parse_schedule(text.data, text.len, &spec, &bad));
	CHECK(spec.payload.len == payload->len);
	CHECK(!payload->len || !memcmp(spec.payload.data, payload->data, payload->len));
	schedule_spec_free(&spec);
	buf_free(&text);
}

static void check_schedule(const struct schedule_spec *spec)
{
	check_text(spec->service);
	check_text(spec->cron);
	check_text(spec->tz);
	CHECK(!(spec->given & spec->nulls));
	CHECK(!spec->cron || (!spec->every_ms && !spec->count));
	CHECK(spec->every_ms >= 0 && spec->every_ms <= MAX_DELAY_MS);
	CHECK(spec->count >= 0 && spec->count <= INT64_C(1) << 53);
	CHECK(spec->slack_ms >= 0 && spec->slack_ms <= 3600000);
	CHECK(!spec->misfire_ms || (spec->misfire_ms >= 1000 && spec->misfire_ms <= 86400000));
	CHECK(spec->payload.len <= MAX_PAYLOAD);
	check_payload(&spec->payload);
	if (spec->given >> SCHEDULE_START & 1)
		check_time(spec->start_us);
	if (spec->given >> SCHEDULE_END & 1)
		check_time(spec->end_us);
}

static bool read_schedule(const char *text, size_t len, struct bad *bad)
{
	struct schedule_spec spec = {};
	bool good = parse_schedule(text, len, &spec, bad);

	if (good)
		check_schedule(&spec);
	CHECK(good || (!spec.cron && !spec.payload.data));
	schedule_spec_free(&spec);
	return good;
}

static bool read_schedules(const char *text, size_t len, struct bad *bad)
{
	struct schedule_spec *specs;
	unsigned int nr;
	bool good = parse_schedules(text, len, &specs, &nr, bad);

	for (unsigned int i = 0; i < nr; i++) {
		CHECK(specs[i].name && service_name_is_good(specs[i].name));
		check_schedule(&specs[i]);
	}
	CHECK(good || !specs);
	schedule_specs_free(specs, nr);
	return good;
}

/* Any bytes as a payload. */
static bool read_payload(const char *text, size_t len)
{
	struct buf payload = {};

	buf_add(&payload, text, len);
	check_payload(&payload);
	buf_free(&payload);
	return true;
}

static bool read_time(const char *text, size_t len, struct bad *bad)
{
	int64_t us;

	if (!parse_time(text, len, &us))
		return bad_set(bad, 400, "invalid_time", NULL, "no time");
	check_time(us);
	return true;
}

static bool read_as(int what, char *text, size_t len, struct bad *bad)
{
	struct when when = {};
	struct report report = {};
	bool good;

	switch (what) {
	case 0:
		return read_raw(text, len, bad);
	case 1:
		return read_service(text, len, bad);
	case 2:
		return parse_move(text, len, &when, bad);
	case 3:
		good = parse_report(text, len, &report, bad);
		report_free(&report);
		return good;
	case 4:
		return read_time(text, len, bad);
	case 6:
		return read_schedule(text, len, bad);
	case 7:
		return read_schedules(text, len, bad);
	case 8:
		return read_payload(text, len);
	default:
		return read_jobs(text, len, bad);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bad bad = {};
	char *text;

	if (!size)
		return 0;
	/* Of its own size, so that what reads over its end is seen. */
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (!read_as(*data - '0', text, size - 1, &bad))
		check_bad(&bad);
	free(text);
	return 0;
}

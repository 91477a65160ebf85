// SPDX-License-Identifier: GPL-2.0
/*
 * "twjob schedule apply": has the schedules of a file, in one transaction. What is there is read in
 * the form of a file as well, so that like is compared with like.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twjob-commands.h"
#include "twjob-schedule.h"

#define SHOWN_BYTES	60	/* of a payload */

/* struct set: schedules, by their names; @sorted points to them */
struct set {
	struct schedule_spec *spec;
	const struct schedule_spec **sorted;
	unsigned int nr;
};

/* struct counts: what came of how many */
struct counts {
	uint64_t created, changed, removed, left, others;
};

/* -------------------------------------------------------------------------- reading */

void read_schedules_file(struct buf *b, const char *name)
{
	bool is_stdin = !strcmp(name, "-");
	FILE *f = is_stdin ? stdin : fopen(name, "re");
	char part[65536];
	size_t len;

	if (!f)
		die(STATUS_FAILED, "%s: %s", name, strerror(errno));
	buf_puts(b, "");
	do {
		len = fread(part, 1, sizeof(part), f);
		buf_add(b, part, len);
		if (b->len > MAX_BODY)
			die(STATUS_USAGE, "%s: is larger than %d bytes", name, MAX_BODY);
	} while (len == sizeof(part));
	if (ferror(f))
		die(STATUS_FAILED, "%s: %s", name, strerror(errno));
	if (!is_stdin)
		fclose(f);
}

static int compare(const void *a, const void *b)
{
	const struct schedule_spec *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static void set_read(struct set *set, const struct buf *text, const char *name)
{
	struct bad bad;

	if (!parse_schedules(text->data, text->len, &set->spec, &set->nr, &bad))
		die(STATUS_USAGE, "%s: %s%s%s", name, bad.field, *bad.field ? ": " : "",
		    bad.message);
	set->sorted = xcalloc(set->nr + 1, sizeof(*set->sorted));
	for (unsigned int i = 0; i < set->nr; i++)
		set->sorted[i] = &set->spec[i];
	qsort(set->sorted, set->nr, sizeof(*set->sorted), compare);
}

static const struct schedule_spec *set_find(const struct set *set, const struct schedule_spec *spec)
{
	const struct schedule_spec **found;

	found = bsearch(&spec, set->sorted, set->nr, sizeof(*set->sorted), compare);
	return found ? *found : NULL;
}

static void set_free(struct set *set)
{
	schedule_specs_free(set->spec, set->nr);
	free(set->sorted);
}

/* ------------------------------------------------------------------------ comparing */

static void add_text(struct buf *b, const char *text)
{
	buf_puts(b, text ? text : "-");
}

static void add_number(struct buf *b, int64_t value, int64_t instead)
{
	buf_printf(b, "%lld", (long long)(value ? value : instead));
}

static void add_stamp(struct buf *b, const struct schedule_spec *spec, enum schedule_field field,
		      int64_t us)
{
	char text[TIME_TEXT] = "-";

	if (spec->given >> field & 1)
		format_time(us, text);
	buf_puts(b, text);
}

static void add_payload(struct buf *b, const struct buf *payload)
{
	if (payload->len <= SHOWN_BYTES &&
	    text_is_good(payload->data ? payload->data : "", payload->len, 1, SHOWN_BYTES))
		buf_add(b, payload->data, payload->len);
	else
		buf_printf(b, "%zu bytes", payload->len);
}

/* In the order in which they are told. */
static const struct {
	const char *name;
	enum schedule_field field;
} fields[] = {
	{ "service", SCHEDULE_SERVICE }, { "cron", SCHEDULE_CRON }, { "tz", SCHEDULE_TZ },
	{ "every_ms", SCHEDULE_EVERY }, { "count", SCHEDULE_COUNT },
	{ "start_at", SCHEDULE_START }, { "end_at", SCHEDULE_END },
	{ "misfire", SCHEDULE_MISFIRE }, { "misfire_ms", SCHEDULE_MISFIRE_MS },
	{ "overlap", SCHEDULE_OVERLAP }, { "broadcast", SCHEDULE_BROADCAST },
	{ "slack_ms", SCHEDULE_SLACK }, { "paused", SCHEDULE_PAUSED },
	{ "payload", SCHEDULE_PAYLOAD },
};

/* As text for people: what is not said is the default. */
static void add_value(struct buf *b, const struct schedule_spec *spec, enum schedule_field field)
{
	switch (field) {
	case SCHEDULE_SERVICE:
		return add_text(b, spec->service);
	case SCHEDULE_CRON:
		return add_text(b, spec->cron);
	case SCHEDULE_TZ:
		return add_text(b, spec->tz);
	case SCHEDULE_EVERY:
		return spec->every_ms ? add_number(b, spec->every_ms, 0) : add_text(b, NULL);
	case SCHEDULE_COUNT:
		return spec->count ? add_number(b, spec->count, 0) : add_text(b, NULL);
	case SCHEDULE_START:
		return add_stamp(b, spec, field, spec->start_us);
	case SCHEDULE_END:
		return add_stamp(b, spec, field, spec->end_us);
	case SCHEDULE_MISFIRE:
		return add_text(b, spec->misfire ? spec->misfire : "smart");
	case SCHEDULE_MISFIRE_MS:
		return add_number(b, spec->misfire_ms, 60000);
	case SCHEDULE_OVERLAP:
		return add_text(b, spec->overlap ? spec->overlap : "allow");
	case SCHEDULE_BROADCAST:
		return add_text(b, spec->broadcast ? "true" : "false");
	case SCHEDULE_SLACK:
		return add_number(b, spec->slack_ms, 0);
	case SCHEDULE_PAUSED:
		return add_text(b, spec->paused ? "true" : "false");
	default:
		return add_payload(b, &spec->payload);
	}
}

static bool differs(const struct schedule_spec *a, const struct schedule_spec *b,
		    enum schedule_field field)
{
	struct buf old = { 0 }, new = { 0 };
	bool other;

	if (field == SCHEDULE_PAYLOAD)
		return a->payload.len != b->payload.len ||
		       (a->payload.len && memcmp(a->payload.data, b->payload.data, a->payload.len));
	add_value(&old, a, field);
	add_value(&new, b, field);
	other = strcmp(old.data, new.data);
	buf_free(&old);
	buf_free(&new);
	return other;
}

static bool is_same(const struct schedule_spec *a, const struct schedule_spec *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (differs(a, b, fields[i].field))
			return false;
	return true;
}

/* -------------------------------------------------------------------------- telling */

static void print_change(const struct schedule_spec *old, const struct schedule_spec *new,
			 size_t i, bool json, bool first)
{
	struct buf a = { 0 }, b = { 0 };

	add_value(&a, old, fields[i].field);
	add_value(&b, new, fields[i].field);
	if (json) {
		printf("%s\"%s\"", first ? "" : ",", fields[i].name);
	} else {
		clean(a.data);
		clean(b.data);
		printf("    %-10s  %s -> %s\n", fields[i].name, a.data, b.data);
	}
	buf_free(&a);
	buf_free(&b);
}

static void print_one(const char *what, const char *name, const struct schedule_spec *old,
		      const struct schedule_spec *new, bool json)
{
	bool first = true;

	if (json)
		printf("{\"schedule\":\"%s\",\"result\":\"%s\"", name, what);
	else
		printf("%s %s\n", what, name);
	if (json && old && new)
		printf(",\"fields\":[");
	for (size_t i = 0; old && new && i < ARRAY_SIZE(fields); i++) {
		if (!differs(old, new, fields[i].field))
			continue;
		print_change(old, new, i, json, first);
		first = false;
	}
	if (json)
		printf("%s}\n", old && new ? "]" : "");
}

static void print_counts(const struct counts *c, const struct options *opt)
{
	if (opt->json)
		return;
	printf("%llu created, %llu changed, %llu removed, %llu left as they are%s\n",
	       (unsigned long long)c->created, (unsigned long long)c->changed,
	       (unsigned long long)c->removed, (unsigned long long)c->left,
	       opt->schedule.dry_run ? ": nothing was done" : "");
	if (c->others)
		printf("%llu are not in the file: see --prune\n", (unsigned long long)c->others);
}

/* -------------------------------------------------------------------------- applying */

/* Of what is new or another one: what has ended may stay in the file. */
static bool check(const struct schedule_spec *spec, int64_t now_us)
{
	struct schedule_times t = schedule_times_of(spec);
	struct bad bad = { .field = "service", .message = "each needs a service" };

	if (spec->service && schedule_check(&t, now_us, &bad))
		return true;
	tell("%s: %s: %s", spec->name, bad.field, bad.message);
	return false;
}

/*
 * That somebody has paused one is not undone by a file that does not speak of it: here it is taken
 * for the same, and send_schedule() leaves it to the database, where it may change until then.
 */
static void check_all(struct set *file, const struct set *now, int64_t now_us)
{
	bool good = true;

	for (unsigned int i = 0; i < file->nr; i++) {
		struct schedule_spec *spec = &file->spec[i];
		const struct schedule_spec *old = set_find(now, spec);

		if (old && !(spec->given >> SCHEDULE_PAUSED & 1))
			spec->paused = old->paused;
		if (!old || !is_same(old, spec))
			good &= check(spec, now_us);
	}
	if (!good)
		die(STATUS_USAGE, "nothing was changed");
}

static void put(PGconn *db, const struct schedule_spec *spec)
{
	PGresult *r = send_schedule(db, spec);

	if (PQresultStatus(r) != PGRES_TUPLES_OK) {
		tell("%s is refused, and nothing was changed:", spec->name);
		end_by_error(r, db);
	}
	PQclear(r);
}

/* One that the file has. */
static void go_to(PGconn *db, const struct options *opt, const struct schedule_spec *spec,
		  const struct schedule_spec *old, struct counts *c)
{
	if (old && is_same(old, spec)) {
		c->left++;
		return;
	}
	*(old ? &c->changed : &c->created) += 1;
	if (db)
		put(db, spec);
	else
		print_one(old ? "changed" : "created", spec->name, old, spec, opt->json);
}

/* One that it does not have. */
static void go_to_other(PGconn *db, const struct options *opt, const struct schedule_spec *old,
			struct counts *c)
{
	const char *name = old->name;

	*(opt->schedule.prune ? &c->removed : &c->others) += 1;
	if (!opt->schedule.prune)
		return;
	if (db)
		PQclear(ask(db, "select twheel.unschedule($1)", 1, &name));
	else
		print_one("removed", name, old, NULL, opt->json);
}

/*
 * Writes if @db is not NULL, else tells. In the order of names, whatever the order of the file is
 * and whether they go or stay: two at a time could wait for each other otherwise.
 */
static void go_through(PGconn *db, const struct options *opt, const struct set *file,
		       const struct set *now, struct counts *c)
{
	unsigned int i = 0, k = 0;

	while (i < file->nr || k < now->nr) {
		int order = i == file->nr ? 1 : k == now->nr ? -1 :
			    compare(&file->sorted[i], &now->sorted[k]);

		if (order > 0)
			go_to_other(db, opt, now->sorted[k], c);
		else
			go_to(db, opt, file->sorted[i], order ? NULL : now->sorted[k], c);
		i += order <= 0;
		k += order >= 0;
	}
}

int cmd_schedule_apply(const struct options *opt, const char *name)
{
	struct set file = { 0 }, now = { 0 };
	struct buf text = { 0 }, is = { 0 };
	struct counts done = { 0 }, told = { 0 };
	PGconn *db;

	read_schedules_file(&text, name);
	set_read(&file, &text, name);
	db = must_open_db(opt->conninfo);
	PQclear(ask(db, "begin isolation level read committed", 0, NULL));
	add_schedules(&is, db, NULL);
	set_read(&now, &is, "the database");
	check_all(&file, &now, clock_of_db(db));
	if (!opt->schedule.dry_run)
		go_through(db, opt, &file, &now, &done);
	PQclear(ask(db, "commit", 0, NULL));
	go_through(NULL, opt, &file, &now, &told);
	print_counts(&told, opt);
	PQfinish(db);
	set_free(&file);
	set_free(&now);
	buf_free(&text);
	buf_free(&is);
	return opt->schedule.dry_run && told.created + told.changed + told.removed ?
		STATUS_DIFFERS : 0;
}

// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "twjob-commands.h"
#include "twjob-db.h"

/* A transaction has so many lines, or fewer if they are long. */
#define LINES		1000
#define LINES_BYTES	(8 << 20)

#define WHEN	"coalesce($2::timestamptz," \
		" clock_timestamp() + $3::bigint * interval '1 microsecond')"
#define OTHERS	"key => $5, order_key => $6, tag => $7, slack_ms => $8::integer"

static void read_all(struct buf *b, FILE *f, const char *name)
{
	char part[65536];
	size_t len;

	do {
		len = fread(part, 1, sizeof(part), f);
		buf_add(b, part, len);
		if (b->len > MAX_PAYLOAD)
			die(STATUS_USAGE, "%s: a payload has at most 1 MiB", name);
	} while (len == sizeof(part));
	if (ferror(f))
		die(STATUS_FAILED, "%s: %s", name, strerror(errno));
}

void read_payload(struct buf *b, const struct options *opt, bool from_stdin)
{
	FILE *f = NULL;

	if (from_stdin)
		read_all(b, stdin, "standard input");
	if (opt->payload)
		buf_puts(b, opt->payload);
	if (opt->file) {
		f = fopen(opt->file, "re");
		if (!f)
			die(STATUS_FAILED, "--file %s: %s", opt->file, strerror(errno));
		read_all(b, f, opt->file);
		fclose(f);
	}
	if (b->len > MAX_PAYLOAD)
		die(STATUS_USAGE, "--payload: a payload has at most 1 MiB");
}

/* Whether it was done is not known if the connection ended meanwhile. */
static PGresult *submit(PGconn *db, const char *sql, const struct options *opt,
			const char *service, const void *payload, size_t len, bool binary)
{
	char in_us[24], slack_ms[24];
	const char *params[] = {
		service, opt->at, in_us, payload ? payload : "", opt->key, opt->order_key,
		opt->tag, slack_ms,
	};
	int lengths[8] = { [3] = (int)len };
	int formats[8] = { [3] = binary };
	ExecStatusType status;
	PGresult *r;

	snprintf(in_us, sizeof(in_us), "%lld", (long long)opt->in_us);
	snprintf(slack_ms, sizeof(slack_ms), "%lld", (long long)opt->slack_us / 1000);
	r = PQexecParams(db, sql, 8, NULL, params, lengths, formats, 0);
	status = PQresultStatus(r);
	if (status == PGRES_TUPLES_OK)
		return r;
	if (PQstatus(db) != CONNECTION_OK)
		die(STATUS_FAILED, "connection lost: what was sent may have been submitted%s",
		    opt->key ? "; to repeat it makes no second job" : "");
	end_by_error(r, db);
}

static void print_ids(const struct options *opt, const PGresult *r)
{
	for (int i = 0; i < PQntuples(r); i++)
		printf(opt->json ? "{\"id\":%s}\n" : "%s\n", PQgetvalue(r, i, 0));
}

/* An array of bytea, as text. */
static void add_element(struct buf *b, const char *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	buf_puts(b, b->len ? ",\"\\\\x" : "{\"\\\\x");
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)data[i];
		char hex[] = { digits[c >> 4], digits[c & 15] };

		buf_add(b, hex, 2);
	}
	buf_puts(b, "\"");
}

static void submit_page(PGconn *db, const struct options *opt, const char *service, struct buf *b)
{
	PGresult *r;

	buf_puts(b, "}");
	r = submit(db, "select twheel.submit($1, " WHEN ", l.line, " OTHERS ")"
		   " from unnest($4::bytea[]) with ordinality l(line, n) order by l.n", opt,
		   service, b->data, b->len, false);
	print_ids(opt, r);
	PQclear(r);
	b->len = 0;
}

static int submit_lines(PGconn *db, const struct options *opt, const char *service)
{
	struct buf b = { 0 };
	uint64_t nr = 0, done = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	while ((len = getline(&line, &room, stdin)) >= 0) {
		if (len && line[len - 1] == '\n')
			len--;
		if (len > MAX_PAYLOAD)
			die(STATUS_USAGE, "line %llu: more than 1 MiB; %llu were submitted",
			    (unsigned long long)nr + 1, (unsigned long long)done);
		add_element(&b, line, (size_t)len);
		nr++;
		if (nr - done < LINES && b.len < LINES_BYTES)
			continue;
		submit_page(db, opt, service, &b);
		done = nr;
		show_progress("submitted", done);
	}
	if (ferror(stdin))
		die(STATUS_FAILED, "standard input: %s; %llu were submitted", strerror(errno),
		    (unsigned long long)done);
	if (nr > done)
		submit_page(db, opt, service, &b);
	end_progress();
	free(line);
	buf_free(&b);
	return 0;
}

int cmd_submit(const struct options *opt, int nr, char **args)
{
	bool from_stdin = nr == 2;
	struct buf b = { 0 };
	PGconn *db;
	PGresult *r;

	if (from_stdin && strcmp(args[1], "-"))
		die(STATUS_USAGE, "does not take '%s': see --payload, --file and -", args[1]);
	if (from_stdin + !!opt->payload + !!opt->file + opt->lines > 1)
		die(STATUS_USAGE, "takes one of --payload, --file, --lines and -");
	if (opt->lines && opt->key)
		die(STATUS_USAGE, "--key cannot be used with --lines: there would be only one job");
	if (!opt->lines)
		read_payload(&b, opt, from_stdin);
	db = must_open_db(opt->conninfo);
	if (opt->lines) {
		submit_lines(db, opt, args[0]);
	} else {
		r = submit(db, "select twheel.submit($1, " WHEN ", $4::bytea, " OTHERS ")", opt,
			   args[0], b.data, b.len, true);
		print_ids(opt, r);
		PQclear(r);
	}
	PQfinish(db);
	buf_free(&b);
	return 0;
}

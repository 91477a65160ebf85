// SPDX-License-Identifier: GPL-2.0
/* twjob - jobs of twheeld from the command line */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twjob-commands.h"

#ifndef VERSION
#define VERSION	"unknown"
#endif

#define HELP_COLUMN	23
#define HELP_INDENT	"                       "

enum command {
	SUBMIT		= 1 << 0,
	CANCEL		= 1 << 1,
	MOVE		= 1 << 2,
	LS		= 1 << 3,
	SHOW		= 1 << 4,
	SERVICE_SET	= 1 << 5,
	SERVICE_LS	= 1 << 6,
	SERVICE_PAUSE	= 1 << 7,
	SERVICE_RESUME	= 1 << 8,
	SERVICE_RM	= 1 << 9,
	DEAD_LS		= 1 << 10,
	DEAD_REQUEUE	= 1 << 11,
	DEAD_REQUEUE_ALL = 1 << 12,
	NODES		= 1 << 13,
	DRAIN		= 1 << 14,
	WORK		= 1 << 15,
	SCHEDULE_PUT	= 1 << 16,
	SCHEDULE_LS	= 1 << 17,
	SCHEDULE_SHOW	= 1 << 18,
	SCHEDULE_RM	= 1 << 19,
	SCHEDULE_PAUSE	= 1 << 20,
	SCHEDULE_RESUME	= 1 << 21,
	SCHEDULE_RUN	= 1 << 22,
	SCHEDULE_APPLY	= 1 << 23,
	REHEARSE	= 1 << 30,
	ALL		= 0x7fffffff,
};

#define ANY_NUMBER	1000000

/* A name is one word, or two. */
static const struct {
	const char *name;
	const char *args;
	const char *help;
	enum command bit;
	int least, most;	/* arguments */
} commands[] = {
	{ "submit", " SERVICE [-]",
	  "Submit a job, which is due now unless --at or --in is given, and print its id.\n"
	  "The payload is TEXT, the contents of FILE, standard input if - is given, or empty.\n"
	  "A second submit with the same --key makes no second job; it prints the id of the\n"
	  "first.", SUBMIT, 1, 2 },
	{ "cancel", " ID... | --tag T",
	  "Cancel the given jobs, or all jobs with a tag, that have not begun or that wait for\n"
	  "their next attempt. A cancelled job will not start.", CANCEL, 0, ANY_NUMBER },
	{ "move", " ID --at TIME | --in DURATION",
	  "Move a job that has not begun, or that waits for its next attempt, to another\n"
	  "time.", MOVE, 1, 1 },
	{ "ls", "",
	  "List jobs that wait or run, in the order of their times. With --state finished,\n"
	  "failed, cancelled, requeued or skipped: those that are over, the latest first.",
	  LS, 0, 0 },
	{ "show", " ID",
	  "Show a job, each attempt at it, and how it ended.", SHOW, 1, 1 },
	{ "service set", " NAME KEY=VALUE...",
	  "Make a service, or change the given settings:\n"
	  "    kind=http|queue|amqp     needed for a new service\n"
	  "    target=URL               where to post jobs; for amqp EXCHANGE/ROUTING-KEY\n"
	  "    headers={\"Name\":\"v\"}     added to requests\n"
	  "    timeout=30s              wait for an answer\n"
	  "    accept=1h                wait for a result after an answer of 202\n"
	  "    max_attempts=20\n"
	  "    backoff=1s  backoff_max=1h   delay before the second attempt, and its limit\n"
	  "    concurrency=100          calls at once in the cluster\n"
	  "    rate=none                calls a second in the cluster\n"
	  "    delivery=at_least_once|at_most_once\n"
	  "    notify=true              notify consumers of a queue of new rows",
	  SERVICE_SET, 2, 32 },
	{ "service ls", "", "List services.", SERVICE_LS, 0, 0 },
	{ "service pause", " NAME",
	  "Stop a service: its jobs wait.", SERVICE_PAUSE, 1, 1 },
	{ "service resume", " NAME", "Resume a service.", SERVICE_RESUME, 1, 1 },
	{ "service rm", " NAME",
	  "Remove a service that has no jobs and no schedules.", SERVICE_RM, 1, 1 },
	{ "schedule put", " NAME SERVICE (--cron EXPR [--tz ZONE] | --every DURATION) [-]",
	  "Make a schedule, or replace all of it: options not given have their defaults. At\n"
	  "each of its times it makes a job of the service, with the payload, and with its name\n"
	  "as the tag. An expression has five fields as in cron (minute, hour, day, month, day\n"
	  "of the week), six or seven as in Quartz (with seconds first and a year last), or is\n"
	  "@hourly, @daily, @weekly, @monthly or @yearly.",
	  SCHEDULE_PUT, 2, 3 },
	{ "schedule ls", "",
	  "List schedules. With --json: completely, as a file for \"schedule apply\" and\n"
	  "\"rehearse\".", SCHEDULE_LS, 0, 0 },
	{ "schedule show", " NAME",
	  "Show a schedule, and its next times, even if it is paused.", SCHEDULE_SHOW, 1, 1 },
	{ "schedule rm", " NAME",
	  "Remove a schedule and its planned jobs. Jobs that have begun go on.",
	  SCHEDULE_RM, 1, 1 },
	{ "schedule pause", " NAME",
	  "Make no more jobs of a schedule.", SCHEDULE_PAUSE, 1, 1 },
	{ "schedule resume", " NAME",
	  "Resume a schedule. Its --misfire decides about the times it has missed.",
	  SCHEDULE_RESUME, 1, 1 },
	{ "schedule run", " NAME",
	  "Submit a job of a schedule now, in addition to its times, even if it is paused, and\n"
	  "print the id.", SCHEDULE_RUN, 1, 1 },
	{ "schedule apply", " FILE",
	  "Make the schedules of a file ({\"schedules\": [...]}; - is standard input), in one\n"
	  "transaction, and print what was created, changed and removed. Those that are the\n"
	  "same are left as they are. A schedule stays paused if the file does not say.",
	  SCHEDULE_APPLY, 1, 1 },
	{ "dead ls", " [SERVICE]",
	  "List jobs that have failed for good, the latest first.", DEAD_LS, 0, 1 },
	{ "dead requeue", " ID...",
	  "Submit jobs that have failed for good again, as new ones that are due now, and\n"
	  "print their new ids.", DEAD_REQUEUE, 1, ANY_NUMBER },
	{ "dead requeue-all", " SERVICE",
	  "The same for all jobs of a service that have failed until now. Prints how many.",
	  DEAD_REQUEUE_ALL, 1, 1 },
	{ "nodes", "",
	  "List nodes, what they own, and whether they beat, which takes up to 4 seconds.",
	  NODES, 0, 0 },
	{ "drain", " NODE",
	  "Ask a node, by its uuid or name, to give its shards away and to stop.", DRAIN, 1, 1 },
	{ "work", " SERVICE [OPTIONS] -- COMMAND [ARGUMENT...]",
	  "Take jobs of a queue and run COMMAND for each, with the payload on its standard\n"
	  "input, and TWJOB_ID, TWJOB_ATTEMPT, TWJOB_DUE, TWJOB_TAG and TWJOB_IDEM in its\n"
	  "environment. If it exits with 0 the job is finished. Else it fails with the last\n"
	  "line of standard error as the message, and is tried again after the service's\n"
	  "backoff. On SIGTERM takes no more jobs and waits for those that run, which a\n"
	  "second SIGTERM kills.",
	  WORK, 1, 1 },
	{ "rehearse", " [FILE...] | --diff OLD NEW",
	  "Run a month or a year of schedules in virtual time, and print what fires when: how\n"
	  "often each fires, the busiest minutes, days on which clocks are set, overlaps, and\n"
	  "errors. The schedules are those of the files ({\"schedules\": [...]}; - is standard\n"
	  "input), for which no database is needed, or those of the database. With --diff:\n"
	  "which times come, go and stay if one file replaces another.",
	  REHEARSE, 0, ANY_NUMBER },
};

#define ONE_JOB		(CANCEL | MOVE | SHOW)
#define LISTS		(LS | SERVICE_LS | DEAD_LS | NODES)
#define OF_SCHEDULES	(SCHEDULE_PUT | SCHEDULE_LS | SCHEDULE_SHOW | SCHEDULE_RUN | SCHEDULE_APPLY)

/* Options that have no letter. */
enum {
	OPT_CRON = 256, OPT_TZ, OPT_EVERY, OPT_START, OPT_END, OPT_COUNT, OPT_MISFIRE,
	OPT_GRACE, OPT_OVERLAP, OPT_BROADCAST, OPT_PAUSED, OPT_PRUNE, OPT_DRY_RUN, OPT_AGENT,
};

static const struct {
	const char *name;
	const char *arg;
	const char *help;
	int key;
	unsigned int commands;
} options[] = {
	{ "at", "TIME", "when the job is due: 2026-12-24T18:00:00Z, or now", 'a', SUBMIT | MOVE },
	{ "in", "DURATION", "the same, counted from now: 90s, 1h30m, 2d", 'i', SUBMIT | MOVE },
	{ "key", "K", "no second job with that key until 24 hours after\n"
	  HELP_INDENT "the first was due", 'k', SUBMIT },
	{ "order-key", "K", "jobs with that key run one at a time, in order", 'o', SUBMIT },
	{ "tag", "T", "name of a group of jobs", 't', SUBMIT | CANCEL | LS },
	{ "slack", "DURATION", "how late it may be, so that batches are larger", 's',
	  SUBMIT | SCHEDULE_PUT },
	{ "payload", "TEXT", "the payload of the job", 'p', SUBMIT | SCHEDULE_PUT },
	{ "file", "FILE", "the same from a file", 'f', SUBMIT | SCHEDULE_PUT },
	{ "lines", NULL, "a job for each line of standard input, 1000 in a\n"
	  HELP_INDENT "transaction", 'L', SUBMIT },
	{ "cron", "EXPR", "fire at the times of that expression: '30 2 * * 1-5'", OPT_CRON,
	  SCHEDULE_PUT },
	{ "tz", "ZONE", "time zone of the expression, such as Europe/Berlin; UTC\n"
	  HELP_INDENT "by default", OPT_TZ, SCHEDULE_PUT },
	{ "every", "DURATION", "or fire at that interval, from --start, or from now", OPT_EVERY,
	  SCHEDULE_PUT },
	{ "count", "N", "number of times of --every; without end by default", OPT_COUNT,
	  SCHEDULE_PUT },
	{ "start", "TIME", "not before", OPT_START, SCHEDULE_PUT },
	{ "end", "TIME", "and not after", OPT_END, SCHEDULE_PUT },
	{ "misfire", "POLICY", "for missed times: fire_now (once), do_nothing, ignore\n"
	  HELP_INDENT "(fire each one late) or smart, which is do_nothing\n"
	  HELP_INDENT "for --every without --count, else fire_now", OPT_MISFIRE, SCHEDULE_PUT },
	{ "grace", "DURATION", "a time that is later than this is missed; 1m by default", OPT_GRACE,
	  SCHEDULE_PUT },
	{ "overlap", "POLICY", "what the next job does while one is not over: allow,\n"
	  HELP_INDENT "skip, or queue (wait)", OPT_OVERLAP, SCHEDULE_PUT },
	{ "broadcast", NULL, "a job for each agent of the service, which is a queue", OPT_BROADCAST,
	  SCHEDULE_PUT },
	{ "paused", NULL, "make no jobs until \"schedule resume\"", OPT_PAUSED, SCHEDULE_PUT },
	{ "prune", NULL, "remove schedules that are not in the file", OPT_PRUNE, SCHEDULE_APPLY },
	{ "dry-run", NULL, "only print what would be done; exit with 5 if anything", OPT_DRY_RUN,
	  SCHEDULE_APPLY },
	{ "service", "NAME", "only those of that service", 'S', LS | SCHEDULE_LS },
	{ "state", "S", "only those in that state: delay, ready, running,\n"
	  HELP_INDENT "accepted or paused; or finished, failed, cancelled,\n"
	  HELP_INDENT "requeued or skipped",
	  'A', LS },
	{ "limit", "N", "at most this many, 100 by default", 'l', LS | DEAD_LS },
	{ "wait", "DURATION", "wait this long until it owns nothing; else fail", 'w', DRAIN },
	{ "jobs", "N", "run up to N commands at once (also -j N), 1 by default", 'j', WORK },
	{ "visible", "DURATION", "how long others leave a job alone if this worker is\n"
	  HELP_INDENT "not heard of, 30s by default", 'v', WORK },
	{ "from", "TIME", "begin of the period, now by default", 'F', REHEARSE },
	{ "to", "TIME", "its end", 'T', REHEARSE },
	{ "for", "DURATION", "or its length, 30d by default", 'D', REHEARSE },
	{ "month", "2026-12", "or that month", 'M', REHEARSE },
	{ "year", "2027", "or that year", 'Y', REHEARSE },
	{ "tz", "ZONE", "print times in that zone, where months begin too; UTC\n"
	  HELP_INDENT "by default", 'Z', REHEARSE },
	{ "takes", "NAME=DURATION", "how long jobs of a schedule or a service run; without\n"
	  HELP_INDENT "NAME= all jobs. May be given more than once", 'R', REHEARSE },
	{ "concurrency", "SERVICE=N", "how many jobs of it may run; 100 if not known.\n"
	  HELP_INDENT "May be given more than once", 'C', REHEARSE },
	{ "list", NULL, "print each time first", 'I', REHEARSE },
	{ "svg", "FILE", "write the chart to that file as well", 'G', REHEARSE },
	{ "diff", NULL, "compare two files", 'X', REHEARSE },
	{ "agent", "NAME", "also take jobs that are broadcast to that agent", OPT_AGENT, WORK },
	{ "until-empty", NULL, "stop when there are no jobs to take", 'e', WORK },
	{ "json", NULL, "print JSON, one object a line", 'J',
	  SUBMIT | ONE_JOB | LISTS | DEAD_REQUEUE | DEAD_REQUEUE_ALL | OF_SCHEDULES |
	  REHEARSE },
	{ "database", "CONNINFO", "the database (also -d); by default PGHOST and so on",
	  'd', ALL },
	{ "help", NULL, "this text", 'h', ALL },
};

#define NR_COMMANDS	ARRAY_SIZE(commands)
#define NR_OPTIONS	ARRAY_SIZE(options)

static const char *command_name = "";

static void vtell(const char *format, va_list args)
{
	char text[1024];

	vsnprintf(text, sizeof(text), format, args);
	clean(text);
	fprintf(stderr, "twjob: %s%s%s\n", command_name, *command_name ? ": " : "", text);
}

void tell(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vtell(format, args);
	va_end(args);
}

void die(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vtell(format, args);
	va_end(args);
	if (fflush(stdout))
		status = STATUS_FAILED;
	exit(status);
}

static void print_help(void)
{
	puts("usage: twjob COMMAND [ARGUMENTS] [OPTIONS]\n\n"
	     "Jobs of twheeld from the command line.\n");
	for (size_t i = 0; i < NR_COMMANDS; i++)
		printf("  twjob %s%s\n", commands[i].name, commands[i].args);
	puts("\n"
	     "See twjob help COMMAND for more, and twjob --version for the version.\n\n"
	     "Exit status: 0 success, 1 failure, 2 usage, 3 there is no such job, service,\n"
	     "schedule or node, 4 the job is running already, 5 the comparison found a\n"
	     "difference.");
}

static void print_command_help(size_t cmd)
{
	printf("usage: twjob %s%s%s\n\n%s\n\n", commands[cmd].name, commands[cmd].args,
	       commands[cmd].bit == WORK ? "" : " [OPTIONS]", commands[cmd].help);
	for (size_t i = 0; i < NR_OPTIONS; i++) {
		int len;

		if (!(options[i].commands & commands[cmd].bit))
			continue;
		len = printf("  --%s%s%s", options[i].name, options[i].arg ? " " : "",
			     options[i].arg ? options[i].arg : "");
		printf("%*s%s\n", HELP_COLUMN > len ? HELP_COLUMN - len : 1, "", options[i].help);
	}
}

static const char *check_name(const char *s)
{
	if (!*s)
		return "cannot be empty";
	return strlen(s) > 2000 ? "is longer than 500 characters" : NULL;
}

static const char *check_state(const char *s)
{
	static const char *const states[] = {
		"delay", "ready", "running", "accepted", "paused",
		"finished", "failed", "cancelled", "requeued", "skipped",
	};

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		if (!strcmp(s, states[i]))
			return NULL;
	}
	return "not a state of jobs, see --help";
}

static const char *set_when(struct options *opt, int key, const char *arg)
{
	if (opt->has_when)
		return "the time is given twice";
	opt->has_when = true;
	return key == 'a' ? read_when(arg, opt) : read_duration(arg, &opt->in_us);
}

static const char *set_slack(struct options *opt, const char *arg)
{
	const char *err = read_duration(arg, &opt->slack_us);

	if (err)
		return err;
	if (opt->slack_us > INT64_C(3600) * USEC_PER_SEC)
		return "slack must be at most an hour";
	return opt->slack_us % 1000 ? "slack must be in whole milliseconds" : NULL;
}

static const char *set_visible(struct options *opt, const char *arg)
{
	const char *err = read_duration(arg, &opt->visible_us);

	if (err)
		return err;
	if (opt->visible_us < USEC_PER_SEC || opt->visible_us > INT64_C(86400) * USEC_PER_SEC)
		return "must be from a second to a day";
	return NULL;
}

static const char *set_text(const char **to, const char *arg)
{
	*to = arg;
	return check_name(arg);
}

static const char *add_text(const char ***to, int *nr, const char *arg)
{
	*to = xrealloc(*to, (*nr + 1) * sizeof(**to));
	(*to)[(*nr)++] = arg;
	return check_name(arg);
}

static const char *set_for(struct options *opt, const char *arg)
{
	const char *err = read_duration(arg, &opt->for_us);

	return !err && !opt->for_us ? "cannot be 0" : err;
}

static const char *set_every(struct options *opt, const char *arg)
{
	const char *err = read_duration(arg, &opt->schedule.every_us);

	if (err)
		return err;
	if (opt->schedule.every_us % 1000 || !opt->schedule.every_us)
		return "must be in whole milliseconds, and not 0";
	if (opt->schedule.every_us > INT64_C(36525) * 86400 * USEC_PER_SEC)
		return "must be at most 100 years";
	return NULL;
}

static const char *set_grace(struct options *opt, const char *arg)
{
	const char *err = read_duration(arg, &opt->schedule.grace_us);

	if (err)
		return err;
	if (opt->schedule.grace_us < USEC_PER_SEC ||
	    opt->schedule.grace_us > INT64_C(86400) * USEC_PER_SEC ||
	    opt->schedule.grace_us % 1000)
		return "must be from a second to a day, in whole milliseconds";
	return NULL;
}

static const char *set_schedule_option(struct options *opt, int key, const char *arg)
{
	struct schedule_options *said = &opt->schedule;

	switch (key) {
	case OPT_CRON:
		return set_text(&said->cron, arg);
	case OPT_TZ:
		return set_text(&said->tz, arg);
	case OPT_EVERY:
		return set_every(opt, arg);
	case OPT_START:
		return set_text(&said->start, arg);
	case OPT_END:
		return set_text(&said->end, arg);
	case OPT_COUNT:
		return read_number(arg, 1, INT64_C(1) << 53, &said->count);
	case OPT_MISFIRE:
		return set_text(&said->misfire, arg);
	case OPT_GRACE:
		return set_grace(opt, arg);
	case OPT_OVERLAP:
		return set_text(&said->overlap, arg);
	case OPT_BROADCAST:
		said->broadcast = true;
		return NULL;
	case OPT_PAUSED:
		said->paused = true;
		return NULL;
	case OPT_PRUNE:
		said->prune = true;
		return NULL;
	case OPT_DRY_RUN:
		said->dry_run = true;
		return NULL;
	case OPT_AGENT:
		return set_text(&opt->agent, arg);
	}
	return NULL;
}

/* What is wrong with @arg, or NULL. */
static const char *set_option(struct options *opt, int key, const char *arg)
{
	switch (key) {
	case 'a':
	case 'i':
		return set_when(opt, key, arg);
	case 'k':
		return set_text(&opt->key, arg);
	case 'o':
		return set_text(&opt->order_key, arg);
	case 't':
		return set_text(&opt->tag, arg);
	case 's':
		return set_slack(opt, arg);
	case 'p':
		opt->payload = arg;
		return NULL;
	case 'f':
		return set_text(&opt->file, arg);
	case 'L':
		opt->lines = true;
		return NULL;
	case 'S':
		return set_text(&opt->service, arg);
	case 'A':
		opt->state = arg;
		return check_state(arg);
	case 'l':
		return read_number(arg, 1, 1000000, &opt->limit);
	case 'w':
		return read_duration(arg, &opt->wait_us);
	case 'j':
		return read_number(arg, 1, 256, &opt->nr_workers);
	case 'v':
		return set_visible(opt, arg);
	case 'e':
		opt->until_empty = true;
		return NULL;
	case 'F':
		return set_text(&opt->from, arg);
	case 'T':
		return set_text(&opt->to, arg);
	case 'D':
		return set_for(opt, arg);
	case 'M':
		return set_text(&opt->month, arg);
	case 'Y':
		return set_text(&opt->year, arg);
	case 'Z':
		return set_text(&opt->tz, arg);
	case 'R':
		return add_text(&opt->takes, &opt->nr_takes, arg);
	case 'C':
		return add_text(&opt->concurrency, &opt->nr_concurrency, arg);
	case 'I':
		opt->list = true;
		return NULL;
	case 'G':
		return set_text(&opt->svg, arg);
	case 'X':
		opt->diff = true;
		return NULL;
	case 'J':
		opt->json = true;
		return NULL;
	case 'd':
		opt->conninfo = arg;
		return NULL;
	case 'h':
		opt->help = true;
		return NULL;
	}
	return set_schedule_option(opt, key, arg);
}

/* getopt_long()'s own message has the name of the program alone. */
static _Noreturn void bad_option(char **argv, int key)
{
	const char *arg = argv[optind - 1];

	if (key == ':')
		die(STATUS_USAGE, "%s needs an argument", arg);
	if (optopt && strncmp(arg, "--", 2))
		die(STATUS_USAGE, "there is no option -%c", optopt);
	die(STATUS_USAGE, "there is no option %s here, see --help", arg);
}

static void parse_options(int argc, char **argv, unsigned int cmd, struct options *opt)
{
	struct option longopts[NR_OPTIONS + 1] = { 0 };
	size_t i, nr = 0;
	const char *err;
	int key;

	for (i = 0; i < NR_OPTIONS; i++) {
		if (!(options[i].commands & cmd))
			continue;
		longopts[nr].name = options[i].name;
		longopts[nr].has_arg = options[i].arg ? required_argument : no_argument;
		longopts[nr++].val = options[i].key;
	}
	while ((key = getopt_long(argc, argv, cmd == WORK ? ":hd:j:" : ":hd:", longopts,
				  NULL)) >= 0) {
		if (key == '?' || key == ':')
			bad_option(argv, key);
		err = set_option(opt, key, optarg);
		if (!err)
			continue;
		for (i = 0; options[i].key != key;)
			i++;
		die(STATUS_USAGE, "--%s %s: %s", options[i].name, optarg ? optarg : "", err);
	}
}

static int call_command(enum command cmd, const struct options *opt, int nr, char **args)
{
	switch (cmd) {
	case SUBMIT:
		return cmd_submit(opt, nr, args);
	case CANCEL:
		return cmd_cancel(opt, nr, args);
	case MOVE:
		return cmd_move(opt, args[0]);
	case LS:
		return cmd_ls(opt);
	case SHOW:
		return cmd_show(opt, args[0]);
	case SERVICE_SET:
		return cmd_service_set(opt, nr, args);
	case SERVICE_LS:
		return cmd_service_ls(opt);
	case SERVICE_PAUSE:
		return cmd_service_pause(opt, args[0], true);
	case SERVICE_RESUME:
		return cmd_service_pause(opt, args[0], false);
	case SERVICE_RM:
		return cmd_service_rm(opt, args[0]);
	case SCHEDULE_PUT:
		return cmd_schedule_put(opt, nr, args);
	case SCHEDULE_LS:
		return cmd_schedule_ls(opt);
	case SCHEDULE_SHOW:
		return cmd_schedule_show(opt, args[0]);
	case SCHEDULE_RM:
		return cmd_schedule_rm(opt, args[0]);
	case SCHEDULE_PAUSE:
		return cmd_schedule_pause(opt, args[0], true);
	case SCHEDULE_RESUME:
		return cmd_schedule_pause(opt, args[0], false);
	case SCHEDULE_RUN:
		return cmd_schedule_run(opt, args[0]);
	case SCHEDULE_APPLY:
		return cmd_schedule_apply(opt, args[0]);
	case DEAD_LS:
		return cmd_dead_ls(opt, nr ? args[0] : NULL);
	case DEAD_REQUEUE:
		return cmd_dead_requeue(opt, nr, args);
	case DEAD_REQUEUE_ALL:
		return cmd_dead_requeue_all(opt, args[0]);
	case NODES:
		return cmd_nodes(opt);
	case DRAIN:
		return cmd_drain(opt, args[0]);
	case WORK:
		return work(opt, args[0]);
	case REHEARSE:
		return cmd_rehearse(opt, nr, args);
	default:
		return STATUS_USAGE;
	}
}

/* What stands behind "--" is the command's own, options and all. */
static int cut_command(int argc, char **argv, struct options *opt)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--"))
			continue;
		opt->command = argv + i + 1;
		return i;
	}
	return argc;
}

static int run_command(size_t cmd, int argc, char **argv, struct options *opt)
{
	int nr;

	command_name = commands[cmd].name;
	if (commands[cmd].bit == WORK)
		argc = cut_command(argc, argv, opt);
	optind = 0;
	opterr = 0;
	parse_options(argc, argv, commands[cmd].bit, opt);
	if (opt->help) {
		print_command_help(cmd);
		return 0;
	}
	nr = argc - optind;
	if (nr < commands[cmd].least)
		die(STATUS_USAGE, "usage: twjob %s%s", commands[cmd].name, commands[cmd].args);
	if (nr > commands[cmd].most)
		die(STATUS_USAGE, "does not take '%s', see --help",
		    argv[optind + commands[cmd].most]);
	if (commands[cmd].bit == WORK && (!opt->command || !*opt->command))
		die(STATUS_USAGE, "give the command to run after --");
	return call_command(commands[cmd].bit, opt, nr, argv + optind);
}

/* How many words of @argv are the name of command @cmd, 0 if they are not. */
static int matches(size_t cmd, int argc, char **argv)
{
	const char *name = commands[cmd].name, *space = strchr(name, ' ');
	size_t len = space ? (size_t)(space - name) : strlen(name);

	if (strlen(argv[0]) != len || strncmp(argv[0], name, len))
		return 0;
	if (!space)
		return 1;
	return argc > 1 && !strcmp(argv[1], space + 1) ? 2 : 0;
}

/* "twjob service": which commands begin so; with --help, what each does. */
static int print_family(int argc, char **argv)
{
	bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
	size_t len = strlen(argv[0]);
	int nr = 0;

	for (size_t i = 0; i < NR_COMMANDS; i++) {
		if (strncmp(commands[i].name, argv[0], len) || commands[i].name[len] != ' ')
			continue;
		if (!nr++)
			fputs("usage:\n", help ? stdout : stderr);
		fprintf(help ? stdout : stderr, "  twjob %s%s\n", commands[i].name,
			commands[i].args);
		if (help)
			printf("\n%s\n\n", commands[i].help);
	}
	if (!nr)
		die(STATUS_USAGE, "there is no command '%s', see twjob --help", argv[0]);
	return help ? 0 : STATUS_USAGE;
}

static int find_command(int argc, char **argv, struct options *opt)
{
	for (size_t i = 0; i < NR_COMMANDS; i++) {
		int words = matches(i, argc, argv);

		if (words)
			return run_command(i, argc - words + 1, argv + words - 1, opt);
	}
	return print_family(argc, argv);
}

/* "help COMMAND" is "COMMAND --help". */
static int help_of(int nr, char **words, struct options *opt)
{
	char *argv[4] = { 0 };

	if (nr > 2)
		die(STATUS_USAGE, "help takes one command");
	if (!nr) {
		print_help();
		return 0;
	}
	memcpy(argv, words, nr * sizeof(*argv));
	argv[nr] = "--help";
	return find_command(nr + 1, argv, opt);
}

int main(int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ "database", required_argument, NULL, 'd' },
		{ 0 },
	};
	struct options opt = {
		.limit = 100, .nr_workers = 1, .visible_us = INT64_C(30) * USEC_PER_SEC,
	};
	int key, status;

	opterr = 0;
	while ((key = getopt_long(argc, argv, "+:hd:", longopts, NULL)) >= 0) {
		switch (key) {
		case 'h':
			print_help();
			return fflush(stdout) ? STATUS_FAILED : 0;
		case 'V':
			puts("twjob " VERSION);
			return fflush(stdout) ? STATUS_FAILED : 0;
		case 'd':
			opt.conninfo = optarg;
			break;
		default:
			bad_option(argv, key);
		}
	}
	if (optind == argc)
		die(STATUS_USAGE, "a command is missing, see twjob --help");
	if (!strcmp(argv[optind], "help"))
		status = help_of(argc - optind - 1, argv + optind + 1, &opt);
	else
		status = find_command(argc - optind, argv + optind, &opt);
	free(opt.takes);
	free(opt.concurrency);
	if (fflush(stdout) || ferror(stdout))
		die(STATUS_FAILED, "cannot write the output: %s", strerror(errno));
	return status;
}

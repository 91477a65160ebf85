// SPDX-License-Identifier: GPL-2.0
/* twheelctl - timers of /dev/twheel from the command line */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <linux/twheel.h>

#include "commands.h"
#include "report.h"

#ifndef VERSION
#define VERSION		"unknown"
#endif
#define HELP_COLUMN	20
#define HELP_INDENT	"                    "

enum command {
	INFO	= 1 << 0,
	ARM	= 1 << 1,
	RUN	= 1 << 2,
	TOP	= 1 << 3,
	DOCTOR	= 1 << 4,
	PLOT	= 1 << 5,
};

static const struct {
	const char *name;
	const char *args;
	const char *help;
	enum command bit;
} commands[] = {
	{ "info", "", "Show what the device and the module offer.", INFO },
	{ "arm", " DELAY",
	  "Arm one timer, wait, and print each firing with its lateness.\n"
	  "DELAY is a duration such as 1h30m, 1.5s or 250us, or a wall-clock time such\n"
	  "as @2026-12-24T18:00:00. A timer with --every and without --count fires\n"
	  "until it is interrupted.", ARM },
	{ "run", " FILE|-",
	  "Arm one timer for each line of FILE on one descriptor, print each firing as it\n"
	  "happens, and a summary at the end. A line is\n"
	  "    DELAY [every INTERVAL] [count N] LABEL\n"
	  "    cron \"EXPRESSION\" [tz ZONE] [count N] LABEL\n"
	  "Empty lines and those that begin with # are ignored. If a line is wrong, it is\n"
	  "reported and nothing is armed.", RUN },
	{ "top", "",
	  "Show all wheels of the machine that you may see: whose they are, what they hold,\n"
	  "how often and how late they fire, and when they wake up next.", TOP },
	{ "doctor", "",
	  "Find out why the device is missing, cannot be opened or does not fire, and say\n"
	  "what to do. Exit status: 0 it works, 1 it works but near a limit, 3 it does not.",
	  DOCTOR },
	{ "plot", " FILE|-",
	  "Draw the lateness of a run from FILE, the output of that run with --json: for\n"
	  "the terminal, or with --svg as a picture.", PLOT },
};

static const struct {
	const char *name;
	const char *arg;
	const char *help;
	int key;
	unsigned int commands;
} options[] = {
	{ "every", "D", "interval of a periodic timer", 'e', ARM },
	{ "count", "N", "how many times it expires in all", 'n', ARM },
	{ "label", "TEXT", "its name in the output", 'L', ARM },
	{ "clock", "NAME", "monotonic, boottime, realtime, tai, or manual, which is\n"
	  HELP_INDENT "virtual time and does not wait. Default: realtime if\n"
	  HELP_INDENT "there is an @ time or cron, else monotonic", 'c', ARM | RUN },
	{ "tick", "D", "granularity, rounded down to a power of two of ns", 't',
	  ARM | RUN },
	{ "capacity", "N", "room for this many timers, by default for all", 'C',
	  RUN },
	{ "slack", "D", "timers may expire this much later", 's', ARM | RUN },
	{ "from", "D", "only timers whose last expiry is later than D", 'f',
	  RUN },
	{ "limit", "D", "only timers whose last expiry is at D or earlier", 'l',
	  RUN },
	{ "for", "D", "stop after D", 'F', ARM | RUN },
	{ "exec", "CMD", "run CMD by the shell for each record, see twheelctl(1)", 'x',
	  ARM | RUN },
	{ "quiet", NULL, "print the summary only", 'q', ARM | RUN },
	{ "json", NULL, "print JSON, one object a line", 'j',
	  INFO | ARM | RUN | TOP | DOCTOR },
	{ "dry-run", NULL, "check the input, print the timers, arm none", 'N',
	  ARM | RUN },
	{ "once", NULL, "print one table and exit", 'o', TOP },
	{ "interval", "D", "time between two samples, 1s by default", 'i', TOP },
	{ "sort", "KEY", "fired (the default), armed, late, next, memory or pid", 'S', TOP },
	{ "proc", "DIR", "use this instead of /proc, such as the host's", 'P', TOP },
	{ "root", "DIR", "look at the machine whose root directory is DIR", 'R', DOCTOR },
	{ "svg", NULL, "print SVG", 'V', PLOT },
	{ "device", "PATH", "use this instead of /dev/twheel", 'd',
	  INFO | ARM | RUN | TOP | DOCTOR },
	{ "help", NULL, "this text", 'h', ~0U },
};

#define NR_COMMANDS	ARRAY_SIZE(commands)
#define NR_OPTIONS	ARRAY_SIZE(options)

static int print_help(void)
{
	size_t i;

	puts("usage: twheelctl COMMAND [ARGUMENTS] [OPTIONS]\n\n"
	     "Timers of /dev/twheel from the command line.\n");
	for (i = 0; i < NR_COMMANDS; i++)
		printf("  twheelctl %s%s\n", commands[i].name, commands[i].args);
	puts("\n"
	     "See twheelctl COMMAND --help for more, and twheelctl --version for the version.\n\n"
	     "Exit status: 0 success, 1 a timer was early or lost, 2 usage or bad\n"
	     "input, 3 the device is missing or failed, 4 a command of --exec failed.");
	return EXIT_RUN_OK;
}

static int print_command_help(size_t cmd)
{
	size_t i;
	int len;

	printf("usage: twheelctl %s%s [OPTIONS]\n\n%s\n\n", commands[cmd].name,
	       commands[cmd].args, commands[cmd].help);
	for (i = 0; i < NR_OPTIONS; i++) {
		if (!(options[i].commands & commands[cmd].bit))
			continue;
		len = printf("  --%s%s%s", options[i].name,
			     options[i].arg ? " " : "",
			     options[i].arg ? options[i].arg : "");
		printf("%*s%s\n", HELP_COLUMN - len, "", options[i].help);
	}
	return EXIT_RUN_OK;
}

static const char *parse_clock(const char *s, int *clockid)
{
	static const int clocks[] = {
		CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI,
		TWHEEL_CLOCK_MANUAL,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		if (strcmp(s, clock_name(clocks[i])))
			continue;
		*clockid = clocks[i];
		return NULL;
	}
	return "must be monotonic, boottime, realtime, tai or manual";
}

/* Returns NULL, or what is wrong with @arg */
static const char *set_option(struct options *opt, int key, const char *arg)
{
	const char *err;

	switch (key) {
	case 'e':
		err = parse_duration(arg, &opt->every_ns);
		return !err && !opt->every_ns ? "cannot be 0" : err;
	case 'n':
		return parse_u32(arg, &opt->count);
	case 'L':
		opt->label = arg;
		return check_label(arg);
	case 'c':
		return parse_clock(arg, &opt->clockid);
	case 't':
		err = parse_duration(arg, &opt->tick_ns);
		return !err && !opt->tick_ns ? "cannot be 0" : err;
	case 'C':
		return parse_u32(arg, &opt->capacity);
	case 's':
		return parse_duration(arg, &opt->slack_ns);
	case 'f':
		opt->has_from = true;
		return parse_duration(arg, &opt->from_ns);
	case 'l':
		opt->has_limit = true;
		return parse_duration(arg, &opt->limit_ns);
	case 'F':
		err = parse_duration(arg, &opt->for_ns);
		return !err && !opt->for_ns ? "cannot be 0" : err;
	case 'x':
		opt->exec = arg;
		return *arg ? NULL : "no command";
	case 'q':
		opt->quiet = true;
		break;
	case 'j':
		opt->json = true;
		break;
	case 'N':
		opt->dry_run = true;
		break;
	case 'o':
		opt->once = true;
		break;
	case 'i':
		err = parse_duration(arg, &opt->interval_ns);
		return !err && opt->interval_ns < NSEC_PER_SEC / 20 ? "at least 50ms" : err;
	case 'S':
		return parse_sort(arg, &opt->sort);
	case 'P':
		opt->proc = arg;
		break;
	case 'R':
		opt->root = arg;
		break;
	case 'V':
		opt->svg = true;
		break;
	case 'd':
		opt->device = arg;
		break;
	case 'h':
		opt->help = true;
		break;
	}
	return NULL;
}

/* A delay such as -5s looks like options; getopt stands at or behind its first digit */
static int negative_delay(char **argv, int key)
{
	const char *at = argv[optind];

	if (!at || at[0] != '-' || at[1] != key)
		at = argv[optind - 1];
	return usage_error("arm", parse_duration("-", &(__u64){ 0 }), at);
}

/* Reads the options of @cmd from the table above; returns an exit code */
static int parse_options(int argc, char **argv, unsigned int cmd,
			 struct options *opt)
{
	struct option longopts[NR_OPTIONS + 1] = { 0 };
	char flag[32];
	size_t i, nr = 0;
	const char *err;
	int key;

	for (i = 0; i < NR_OPTIONS; i++) {
		if (!(options[i].commands & cmd))
			continue;
		longopts[nr].name = options[i].name;
		longopts[nr].has_arg = options[i].arg ? required_argument :
							no_argument;
		longopts[nr++].val = options[i].key;
	}
	while ((key = getopt_long(argc, argv, cmd == ARM ? "hq" DIGITS "." : "hq",
				  longopts, NULL)) >= 0) {
		if (key == '?')
			return EXIT_USAGE;
		if (key < 'A')
			return negative_delay(argv, key);
		err = set_option(opt, key, optarg);
		if (!err)
			continue;
		for (i = 0; options[i].key != key; i++)
			;
		snprintf(flag, sizeof(flag), "--%s", options[i].name);
		return usage_error(flag, err, optarg);
	}
	return EXIT_RUN_OK;
}

static int run_command(size_t cmd, int argc, char **argv)
{
	struct options opt = {
		.device = "/dev/twheel",
		.proc = "/proc",
		.root = "",
		.label = "timer",
		.clockid = -1,
	};
	int ret = parse_options(argc, argv, commands[cmd].bit, &opt);
	int wanted = *commands[cmd].args ? 1 : 0;

	if (ret)
		return ret;
	if (opt.help)
		return print_command_help(cmd);
	if (argc - optind != wanted) {
		fprintf(stderr, "usage: twheelctl %s%s [OPTIONS], see twheelctl %s --help\n",
			commands[cmd].name, commands[cmd].args,
			commands[cmd].name);
		return EXIT_USAGE;
	}
	switch (commands[cmd].bit) {
	case INFO:
		return show_info(&opt);
	case ARM:
		return arm_one(&opt, argv[optind]);
	case RUN:
		return run_file(&opt, argv[optind]);
	case TOP:
		return show_top(&opt);
	case DOCTOR:
		return examine(&opt);
	case PLOT:
		return plot_file(&opt, argv[optind]);
	}
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	int ret = EXIT_USAGE;
	size_t i;

	if (argc < 2 || !strcmp(name, "--help") || !strcmp(name, "-h")) {
		ret = print_help();
	} else if (!strcmp(name, "--version")) {
		puts("twheelctl " VERSION);
		ret = EXIT_RUN_OK;
	} else {
		for (i = 0; i < NR_COMMANDS && strcmp(name, commands[i].name);)
			i++;
		if (i < NR_COMMANDS)
			ret = run_command(i, argc - 1, argv + 1);
		else
			usage_error("no such command", "see twheelctl --help",
				    name);
	}
	if (fflush(stdout) || ferror(stdout)) {
		perror("twheelctl: cannot write the output");
		return EXIT_DEVICE;
	}
	return ret;
}

// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "loop.h"
#include "migrate.h"
#include "node.h"

#ifndef VERSION
#define VERSION "unknown"
#endif

/* Timers besides those of jobs: calls, services, connections. */
#define MORE_TIMERS	(1U << 18)

enum { EXIT_USAGE = 2 };

enum mode { RUN, MIGRATE, CHECK };

static const char usage[] =
"usage: twheeld [-c FILE] [-o NAME=VALUE]... [--migrate | --check]\n"
"\n"
"Keeps delayed jobs in PostgreSQL and fires them on time.\n"
"\n"
"  -c, --config=FILE        the configuration, see twheeld.conf(5)\n"
"  -o, --option=NAME=VALUE  a line of the configuration, which overrides the file\n"
"      --migrate            make the schema, or bring it up to date, and exit\n"
"      --check              check the configuration and the schema, and exit\n"
"      --version            print the version and exit\n"
"      --help               print this and exit\n"
"\n"
"On SIGTERM and SIGINT it gives its jobs away, lets calls end, and exits; a second signal ends\n"
"it at once. On SIGHUP another process takes its place, with the configuration as it is then.\n";

/**
 * struct process - what a node does not know of
 * @node:      the node
 * @signals:   SIGTERM, SIGINT and SIGHUP
 * @watchdog:  tells systemd that the loop goes round
 * @stopping:  a signal has come
 * @cut_short: a second one
 */
struct process {
	struct node node;
	struct loop_fd signals;
	struct twheel_timer watchdog;
	bool stopping;
	bool cut_short;
};

static void signalled(struct loop_fd *fd, uint32_t events)
{
	struct process *p = TWHEEL_CONTAINER(fd, struct process, signals);
	struct signalfd_siginfo info;

	(void)events;
	if (read(fd->fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP) {
		successor_start(&p->node);
		return;
	}
	if (p->stopping) {
		log_warn("stop-at-once signal=%u", info.ssi_signo);
		p->cut_short = true;
		loop_stop(&p->node.loop);
		return;
	}
	p->stopping = true;
	log_note("stop signal=%u", info.ssi_signo);
	sd_notify(0, "STOPPING=1");
	node_drain(&p->node);
}

static int open_signals(struct process *p)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	/* What is handed over may be more than a file may have (handover.c). */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGHUP, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	/* Before there are threads of libraries, which inherit this. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	p->signals.fn = signalled;
	p->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p->signals.fd < 0) {
		log_error("start-failed what=signalfd error=%s", quoted(strerror(errno)));
		return -1;
	}
	return 0;
}

static void pat(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)t;
	(void)missed;
	sd_notify(0, "WATCHDOG=1");
}

static int start_watchdog(struct process *p)
{
	uint64_t us;

	if (sd_watchdog_enabled(0, &us) <= 0)
		return 0;
	return twheel_every(p->node.loop.wheel, &p->watchdog, us * TWHEEL_USEC / 2, pat);
}

static int open_loop(struct loop *loop, const struct config *c)
{
	int error = loop_open(loop, config_backend(c), MORE_TIMERS);

	if (error < 0) {
		log_error("start-failed what=wheel backend=%s error=%s", c->backend,
			  quoted(strerror(-error)));
		return -1;
	}
	return 0;
}

static int run_loop(struct process *p)
{
	struct loop *loop = &p->node.loop;
	int error;

	loop_set(loop, &p->signals, EPOLLIN);
	error = start_watchdog(p);
	if (!error) {
		/* That of a successor comes when it has taken over (handover.c). */
		if (!p->node.predecessor.waits)
			sd_notify(0, "READY=1");
		error = loop_run(loop);
	}
	loop_set(loop, &p->signals, 0);
	twheel_cancel(loop->wheel, &p->watchdog);
	if (error < 0)
		log_error("loop-failed error=%s", quoted(strerror(-error)));
	return error;
}

/* Where a new version of the program will be, once it was installed. */
static const char *path_of_program(const char *name)
{
	static char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (len <= 0)
		return name;
	path[len] = '\0';
	return path;
}

static int run(const struct config *c, char **argv)
{
	static struct process p;
	int error;

	p.node.program = path_of_program(argv[0]);
	p.node.argv = argv;

	if (open_signals(&p))
		return EXIT_FAILURE;
	/* Where the database cannot be reached yet, the node looks when it joins. */
	if (schema_check(c->database) == SCHEMA_WRONG)
		return EXIT_FAILURE;
	if (open_loop(&p.node.loop, c))
		return EXIT_FAILURE;
	error = node_start(&p.node, c);
	if (!error) {
		log_note("started version=" VERSION " name=%s", c->name);
		error = run_loop(&p);
		node_stop(&p.node);
	}
	loop_close(&p.node.loop);
	close(p.signals.fd);
	if (error || p.cut_short)
		return EXIT_FAILURE;
	log_note("stopped");
	return EXIT_SUCCESS;
}

static int check(const struct config *c)
{
	if (schema_check(c->database) != SCHEMA_FITS)
		return EXIT_FAILURE;
	puts("the configuration is valid, and the schema fits");
	return EXIT_SUCCESS;
}

static int do_mode(enum mode mode, const struct config *c, char **argv)
{
	switch (mode) {
	case MIGRATE:
		return migrate(c->database) ? EXIT_FAILURE : EXIT_SUCCESS;
	case CHECK:
		return check(c);
	default:
		return run(c, argv);
	}
}

/* What the command line says. 0 to go on; else, in @status, what to exit with. */
static int parse(int argc, char **argv, struct config *c, enum mode *mode, const char **path,
		 int *status)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "option", required_argument, NULL, 'o' },
		{ "migrate", no_argument, NULL, 'm' },
		{ "check", no_argument, NULL, 'k' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int option;

	*status = EXIT_USAGE;
	while ((option = getopt_long(argc, argv, "c:o:", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			*path = optarg;
			break;
		case 'o':
			if (config_set(c, optarg))
				return -1;
			break;
		case 'm':
		case 'k':
			if (*mode != RUN)
				goto wrong;
			*mode = option == 'm' ? MIGRATE : CHECK;
			break;
		case 'v':
			puts("twheeld " VERSION);
			*status = EXIT_SUCCESS;
			return -1;
		case 'h':
			fputs(usage, stdout);
			*status = EXIT_SUCCESS;
			return -1;
		default:
			goto wrong;
		}
	}
	if (optind == argc)
		return 0;
wrong:
	fputs(usage, stderr);
	return -1;
}

int main(int argc, char **argv)
{
	struct config config = { 0 };
	const char *path = NULL;
	enum mode mode = RUN;
	int status;

	if (!parse(argc, argv, &config, &mode, &path, &status)) {
		status = EXIT_FAILURE;
		if (!config_read(&config, path)) {
			log_level = config_log_level(&config);
			status = do_mode(mode, &config, argv);
		}
	}
	config_free(&config);
	return status;
}

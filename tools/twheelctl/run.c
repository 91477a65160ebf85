// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "exec.h"
#include "report.h"
#include "run.h"

#define READ_EVENTS	4096
/* Timers that are due while later ones are still being armed would be late */
#define LEAD_NS_PER_TIMER	20000ULL
#define LEAD_NS_MAX		(2 * NSEC_PER_SEC)
#define PROGRESS_NS		(NSEC_PER_SEC / 10)
#define PATIENCE_NS		(5 * NSEC_PER_SEC)

/* What is known of a timer after it was armed */
struct timer_state {
	__u64 first_ns;
	__u64 id;
	__u64 fired;
	bool done;
};

/* One run, from set-up to summary */
struct run {
	const struct options *opt;
	const struct timer_file *file;
	struct timer_state *state;
	struct twheel_event *events;
	int fd;
	bool manual;
	bool shows_progress;
	int progress_len;
	size_t open;
	__u64 base_ns;
	__u64 until_ns;
	__u64 real_start_ns;
	__u64 progress_ns;
	struct exec exec;
	struct report report;
};

static atomic_int stop;
static sigset_t unblocked;

static void on_signal(int sig)
{
	if (sig != SIGCHLD)
		stop = 1;
}

/* Signals are let in by ppoll() only, so that none is missed before it sleeps */
static void catch_signals(bool block)
{
	struct sigaction sa = { .sa_handler = on_signal,
				.sa_flags = SA_RESETHAND };
	sigset_t set;

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sa.sa_flags = 0;
	sigaction(SIGCHLD, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, &unblocked);
	sigdelset(&unblocked, SIGINT);
	sigdelset(&unblocked, SIGTERM);
	sigdelset(&unblocked, SIGCHLD);
}

static __u64 real_now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static __u64 add_ns(__u64 a, __u64 b)
{
	return b > TIME_MAX_NS - a ? TIME_MAX_NS : a + b;
}

static __u64 expected(const struct timer_spec *spec)
{
	if (!spec->every_ns && !spec->cron)
		return 1;
	return spec->count ? spec->count : ~0ULL;
}

/* ---- progress ---- */

/* A terminal that can go back to the beginning of a line; no sequence is sent to it */
static bool can_show_progress(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb");
}

static void clear_progress(struct run *r)
{
	if (!r->progress_len)
		return;
	fprintf(stderr, "\r%*s\r", r->progress_len, "");
	r->progress_len = 0;
}

static void show_progress(struct run *r, const struct twheel_info *info)
{
	__u64 now = real_now(CLOCK_MONOTONIC), next;
	char due[FMT_NS_LEN];

	if (!r->shows_progress || now - r->progress_ns < PROGRESS_NS)
		return;
	r->progress_ns = now;
	if (device_next(r->fd, &next))
		return;
	if (next == TWHEEL_NEVER)
		strcpy(due, "never");
	else
		format_ns(due, next > info->now_ns ? next - info->now_ns : 0);
	clear_progress(r);
	r->progress_len = fprintf(stderr, "%zu armed, %llu fired, next due in %s",
				  r->open, r->report.fired, due);
}

/* ---- arming ---- */

static int arm_timer(struct run *r, size_t i)
{
	const struct timer_spec *spec = &r->file->v[i];
	struct timer_state *state = &r->state[i];
	struct twheel_op op = {
		.user_data = i,
		.interval_ns = spec->every_ns,
		.count = spec->count,
		.slack_ns = r->opt->slack_ns,
	};

	op.expires_ns = state->first_ns;
	if (ioctl(r->fd, TWHEEL_IOC_ARM, &op)) {
		fprintf(stderr, "twheelctl: cannot arm timer %zu of %zu, '%s': %s\n",
			i + 1, r->file->nr, spec->label, strerror(errno));
		return -1;
	}
	state->id = op.id;
	return 0;
}

static int arm_first(struct run *r, size_t i)
{
	const struct timer_spec *spec = &r->file->v[i];
	struct timer_state *state = &r->state[i];

	state->first_ns = spec->cron ? next_of_cron(spec->cron, r->base_ns) :
			  spec->at ? spec->when_ns :
				     add_ns(r->base_ns, spec->when_ns);
	state->done = spec->cron && state->first_ns == TIME_MAX_NS;
	if (state->done)
		return 0;
	if (arm_timer(r, i))
		return -1;
	r->open++;
	r->report.armed++;
	return 0;
}

static bool has_cron(const struct timer_file *file)
{
	size_t i;

	for (i = 0; i < file->nr && !file->v[i].cron; i++)
		;
	return i < file->nr;
}

static int setup_wheel(struct run *r)
{
	const struct options *opt = r->opt;
	struct twheel_setup setup = {
		.clockid = opt->clockid,
		.tick_ns = opt->tick_ns,
		.capacity = opt->capacity ? opt->capacity : r->file->nr,
	};
	struct twheel_info info;

	if (opt->clockid == CLOCK_REALTIME && has_cron(r->file))
		setup.flags = TWHEEL_SETUP_CLOCK_SET;
	if (device_setup(r->fd, &setup) || device_info(r->fd, &info))
		return -1;
	r->report.clock = clock_name(setup.clockid);
	r->report.virtual = r->manual;
	r->report.left_out = r->file->left_out;
	r->report.tick_ns = setup.tick_ns;
	r->base_ns = info.now_ns;
	if (!r->manual && r->file->nr > 1)
		r->base_ns += r->file->nr * LEAD_NS_PER_TIMER < LEAD_NS_MAX ?
			      r->file->nr * LEAD_NS_PER_TIMER : LEAD_NS_MAX;
	r->until_ns = opt->for_ns ? add_ns(r->base_ns, opt->for_ns) :
				    TIME_MAX_NS;
	return 0;
}

static int arm_all(struct run *r)
{
	size_t i;

	for (i = 0; i < r->file->nr; i++)
		if (arm_first(r, i))
			return -1;
	return 0;
}

/* ---- times of a calendar ---- */

/* What has passed when the clock was set ahead is not made up for */
static int arm_again(struct run *r, const struct twheel_event *ev)
{
	const struct timer_spec *spec = &r->file->v[ev->user_data];
	struct timer_state *state = &r->state[ev->user_data];

	if (spec->count && state->fired >= spec->count)
		return 0;
	state->first_ns = next_of_cron(spec->cron, ev->fired_ns);
	if (state->first_ns == TIME_MAX_NS)
		return 0;
	return arm_timer(r, ev->user_data) ? -1 : 1;
}

/*
 * If the clock was set back times come again. Those that it has passed are
 * about to be reported, or have been.
 */
static int clock_was_set(struct run *r, __u64 now_ns)
{
	size_t i;

	for (i = 0; i < r->file->nr; i++) {
		const struct timer_spec *spec = &r->file->v[i];
		struct timer_state *state = &r->state[i];
		struct twheel_op op = {
			.id = state->id,
			.slack_ns = r->opt->slack_ns,
		};

		if (!spec->cron || state->done || state->first_ns <= now_ns)
			continue;
		op.expires_ns = next_of_cron(spec->cron, now_ns);
		op.user_data = i;
		if (ioctl(r->fd, TWHEEL_IOC_MODIFY, &op) < 0) {
			if (errno == ENOENT)
				continue;
			perror("twheelctl: TWHEEL_IOC_MODIFY");
			return -1;
		}
		state->first_ns = op.expires_ns;
	}
	return 0;
}

/* ---- reaping ---- */

static int take_event(struct run *r, const struct twheel_event *ev)
{
	struct timer_state *state = &r->state[ev->user_data];
	const struct timer_spec *spec = &r->file->v[ev->user_data];
	int again = 0;
	__u64 due;

	if (ev->flags & TWHEEL_EV_CLOCK_SET)
		return clock_was_set(r, ev->fired_ns);
	if (ev->user_data >= r->file->nr || ev->id != state->id ||
	    state->done) {
		r->report.doubled++;
		return 0;
	}
	due = expected(spec);
	state->fired += 1ULL + ev->overrun;
	if (state->fired > due)
		r->report.doubled += state->fired - due;
	if (spec->cron)
		again = arm_again(r, ev);
	if (again < 0)
		return -1;
	if (!(ev->flags & TWHEEL_EV_MORE) && !again) {
		state->done = true;
		r->open--;
		if (state->fired < due)
			r->report.lost += spec->cron ? 0 : spec->count ?
					  due - state->fired : 1;
	}
	count_event(&r->report, ev);
	if (!r->opt->quiet)
		print_event(spec, ev, r->base_ns, r->opt->json);
	if (r->opt->exec)
		exec_start(&r->exec, spec, ev);
	return 0;
}

static bool can_take(const struct run *r)
{
	return r->exec.nr < EXEC_MAX;
}

/*
 * Reads all that is ready, but with --exec no more than may run; returns how many
 * records, or -1
 */
static long drain(struct run *r)
{
	long i, nr, total = 0;
	ssize_t len, size;

	do {
		if (!can_take(r) && r->manual)
			exec_wait(&r->exec, EXEC_MAX, &stop);
		if (!can_take(r))
			break;
		nr = r->opt->exec ? EXEC_MAX - r->exec.nr : READ_EVENTS;
		size = nr * (ssize_t)sizeof(*r->events);
		len = read(r->fd, r->events, size);
		if (len < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		nr = len / (ssize_t)sizeof(*r->events);
		if (len <= 0 || len % sizeof(*r->events)) {
			fprintf(stderr, "twheelctl: read: %s\n", len < 0 ?
				strerror(errno) : "not a whole record");
			return -1;
		}
		clear_progress(r);
		for (i = 0; i < nr; i++)
			if (take_event(r, &r->events[i]))
				return -1;
		total += nr;
	} while (len == size);
	return total;
}

/* A device that forgot a timer would have us wait for ever */
static bool is_stuck(const struct run *r, const struct twheel_info *info)
{
	__u64 next;

	if (info->ready)
		return false;
	if (!info->armed || device_next(r->fd, &next))
		return true;
	return next == TWHEEL_NEVER ||
	       (info->now_ns > next && info->now_ns - next > PATIENCE_NS);
}

static int run_live(struct run *r)
{
	struct pollfd pfd = { .fd = r->fd };
	struct twheel_info info;
	struct timespec ts;
	__u64 wait;
	int ret;

	while (r->open && !stop) {
		if (device_info(r->fd, &info))
			return -1;
		if (info.now_ns >= r->until_ns)
			break;
		show_progress(r, &info);
		fflush(stdout);
		wait = r->shows_progress ? PROGRESS_NS : NSEC_PER_SEC;
		if (wait > r->until_ns - info.now_ns)
			wait = r->until_ns - info.now_ns;
		ts.tv_sec = wait / NSEC_PER_SEC;
		ts.tv_nsec = wait % NSEC_PER_SEC;
		pfd.events = can_take(r) ? POLLIN : 0;
		ret = ppoll(&pfd, 1, &ts, &unblocked);
		if (ret < 0 && errno != EINTR) {
			perror("twheelctl: poll");
			return -1;
		}
		exec_reap(&r->exec);
		if (ret > 0 && drain(r) < 0)
			return -1;
		if (!ret && is_stuck(r, &info))
			break;
	}
	return 0;
}

static int run_manual(struct run *r)
{
	__u64 next, last = 0;
	long nr;

	/* what was armed for the time that the clock shows is ready already */
	if (drain(r) < 0)
		return -1;
	r->report.has_wakeups = true;
	while (!stop) {
		if (device_next(r->fd, &next))
			return -1;
		if (next > r->until_ns)
			return next != TWHEEL_NEVER && r->opt->for_ns ?
			       device_advance(r->fd, r->until_ns) : 0;
		if (device_advance(r->fd, next))
			return -1;
		r->report.wakeups++;
		nr = drain(r);
		if (nr < 0)
			return -1;
		if (!nr && next <= last) {
			fprintf(stderr, "twheelctl: given up, the wheel stays at %llu ns\n",
				next);
			return 0;
		}
		last = next;
	}
	return 0;
}

/* ---- the end ---- */

static bool is_overdue(const struct run *r, size_t i, __u64 now)
{
	const struct timer_spec *spec = &r->file->v[i];
	const struct timer_state *state = &r->state[i];
	__u64 due = state->first_ns;

	if (state->done)
		return false;
	if (spec->every_ns) {
		if (state->fired > TIME_MAX_NS / spec->every_ns)
			return false;
		due = add_ns(due, state->fired * spec->every_ns);
	}
	due = add_ns(due, add_ns(r->opt->slack_ns, r->report.tick_ns - 1));
	due -= due % r->report.tick_ns;
	return add_ns(due, r->manual ? 0 : NSEC_PER_SEC) <= now;
}

/* Tells the timers that only were not due from those that should have fired */
static void find_lost(struct run *r, __u64 now, __u64 held)
{
	__u64 lost = 0;
	size_t i;

	for (i = 0; i < r->file->nr; i++)
		lost += is_overdue(r, i, now);
	if (r->open > held && r->open - held > lost)
		lost = r->open - held;
	r->report.lost += lost;
	r->report.left = r->open - lost;
}

static int finish(struct run *r)
{
	struct report *report = &r->report;
	struct twheel_info info, held;

	if (device_info(r->fd, &info) || drain(r) < 0 ||
	    device_info(r->fd, &held))
		return -1;
	clear_progress(r);
	exec_wait(&r->exec, 1, &stop);
	report->has_commands = r->opt->exec;
	report->commands = r->exec.started;
	report->commands_failed = r->exec.failed;
	report->commands_running = r->exec.nr;
	find_lost(r, info.now_ns, (__u64)held.armed + held.ready);
	report->elapsed_ns = info.now_ns > r->base_ns ?
			     info.now_ns - r->base_ns : 0;
	report->real_ns = real_now(CLOCK_MONOTONIC) - r->real_start_ns;
	if (!r->manual)
		report->has_wakeups = device_counter(r->fd, "wakeups",
						     &report->wakeups);
	return 0;
}

static int run_wheel(struct run *r)
{
	if (setup_wheel(r) || arm_all(r))
		return -1;
	if (r->manual ? run_manual(r) : run_live(r))
		return -1;
	return finish(r);
}

static bool is_bad(const struct report *report)
{
	return report->lost || report->early || report->doubled;
}

static void *xcalloc(size_t nr, size_t size)
{
	void *p = calloc(nr ? nr : 1, size);

	if (!p) {
		perror("twheelctl");
		exit(EXIT_DEVICE);
	}
	return p;
}

int run_timers(const struct options *opt, const struct timer_file *file)
{
	struct run r = {
		.opt = opt,
		.file = file,
		.manual = opt->clockid == TWHEEL_CLOCK_MANUAL,
		.shows_progress = can_show_progress(),
		.exec = { .command = opt->exec, .mask = &unblocked },
		.real_start_ns = real_now(CLOCK_MONOTONIC),
	};
	const struct report *report = &r.report;
	int ret;

	r.fd = device_open(opt->device);
	if (r.fd < 0)
		return EXIT_DEVICE;
	r.state = xcalloc(file->nr, sizeof(*r.state));
	r.events = xcalloc(READ_EVENTS, sizeof(*r.events));
	catch_signals(!r.manual);
	ret = run_wheel(&r);
	clear_progress(&r);
	if (!ret && (!opt->brief || report->left || report->commands_running || is_bad(report)))
		print_summary(report, opt->json);
	close(r.fd);
	free(r.events);
	free(r.state);
	if (ret)
		return EXIT_DEVICE;
	if (is_bad(report))
		return EXIT_RUN_BAD;
	return r.exec.failed ? EXIT_COMMAND : EXIT_RUN_OK;
}

// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "report.h"
#include "wheels.h"

#define INTERVAL_NS	NSEC_PER_SEC
#define LINE_MAX_LEN	512

/* What changed of a wheel between two looks */
struct rate {
	bool known;
	__u64 fired;
	__u64 wakeups;
	__u64 late[TWHEEL_LATENESS_BUCKETS];
};

/* A line of the table */
struct row {
	const struct wheel *w;
	double fired;		/* a second; negative: not known */
	double wakeups;
	__u64 late_ns;		/* 99 % of those in between are below; 0: none */
	__u64 late_max_ns;	/* all are below */
	__u64 next_ns;		/* from now on, or TWHEEL_NEVER */
};

struct top {
	const struct options *opt;
	struct wheels before, now;
	__u64 before_ns, now_ns;
	struct row *rows;
	unsigned char key;
	bool screen;
	unsigned int lines, columns;
};

static int by_fired(const struct row *a, const struct row *b)
{
	return (a->fired < b->fired) - (a->fired > b->fired);
}

static int by_armed(const struct row *a, const struct row *b)
{
	return (a->w->armed < b->w->armed) - (a->w->armed > b->w->armed);
}

static int by_late(const struct row *a, const struct row *b)
{
	if (a->late_ns != b->late_ns)
		return a->late_ns < b->late_ns ? 1 : -1;
	return (a->late_max_ns < b->late_max_ns) - (a->late_max_ns > b->late_max_ns);
}

static int by_next(const struct row *a, const struct row *b)
{
	return (a->next_ns > b->next_ns) - (a->next_ns < b->next_ns);
}

static int by_memory(const struct row *a, const struct row *b)
{
	return (a->w->memory < b->w->memory) - (a->w->memory > b->w->memory);
}

static int by_pid(const struct row *a, const struct row *b)
{
	return (a->w->pid > b->w->pid) - (a->w->pid < b->w->pid);
}

/* The first letter is the key of it, too */
static const struct {
	const char *name;
	int (*compare)(const struct row *a, const struct row *b);
} keys[] = {
	{ "fired", by_fired }, { "armed", by_armed }, { "late", by_late },
	{ "next", by_next }, { "memory", by_memory }, { "pid", by_pid },
};

const char *parse_sort(const char *s, unsigned char *key)
{
	for (*key = 0; *key < ARRAY_SIZE(keys); ++*key)
		if (!strcmp(s, keys[*key].name))
			return NULL;
	return "there are fired, armed, late, next, memory and pid";
}

static int compare_rows(const void *left, const void *right, void *arg)
{
	const struct row *a = left, *b = right;
	const struct top *top = arg;
	int ret = keys[top->key].compare(a, b);

	if (!ret)
		ret = by_pid(a, b);
	return ret ? ret : a->w->fd - b->w->fd;
}

static __u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* ---- figures ---- */

/* The bound below which @percent of them lie; 0 if there are none */
static __u64 late_below(const __u64 late[static TWHEEL_LATENESS_BUCKETS], unsigned int percent)
{
	__u64 all = 0, seen = 0;
	int i;

	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		all += late[i];
	for (i = 0; i < TWHEEL_LATENESS_BUCKETS && all; i++) {
		seen += late[i];
		if (seen >= all - all * (100 - percent) / 100)
			return 1ULL << i;
	}
	return 0;
}

/* Another wheel may have the same descriptor now: it has done less, as a rule */
static const struct wheel *find_before(const struct top *top, const struct wheel *w)
{
	size_t i;

	for (i = 0; i < top->before.nr; i++) {
		const struct wheel *old = &top->before.v[i];

		if (old->pid == w->pid && old->fd == w->fd)
			return old->arms <= w->arms && old->fired <= w->fired &&
			       old->wakeups <= w->wakeups ? old : NULL;
	}
	return NULL;
}

static void make_row(const struct top *top, const struct wheel *w, struct row *row)
{
	const struct wheel *old = find_before(top, w);
	double sec = (top->now_ns - top->before_ns) / 1e9;
	__u64 late[TWHEEL_LATENESS_BUCKETS];
	int i;

	*row = (struct row){ .w = w, .fired = -1, .wakeups = -1 };
	row->late_max_ns = late_below(w->late, 100);
	row->next_ns = w->next_wake_ns;
	if (row->next_ns != TWHEEL_NEVER)
		row->next_ns = row->next_ns > w->now_ns ? row->next_ns - w->now_ns : 0;
	if (!old || sec <= 0)
		return;
	row->fired = (w->fired - old->fired) / sec;
	row->wakeups = (w->wakeups - old->wakeups) / sec;
	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		late[i] = w->late[i] - old->late[i];
	row->late_ns = late_below(late, 99);
}

static int look(struct top *top)
{
	free_wheels(&top->before);
	top->before = top->now;
	top->before_ns = top->now_ns;
	top->now_ns = now_ns();
	return find_wheels(top->opt->proc, top->opt->device, &top->now);
}

static int make_rows(struct top *top)
{
	size_t i;

	free(top->rows);
	top->rows = calloc(top->now.nr + 1, sizeof(*top->rows));
	if (!top->rows) {
		perror("twheelctl");
		return -1;
	}
	for (i = 0; i < top->now.nr; i++)
		make_row(top, &top->now.v[i], &top->rows[i]);
	qsort_r(top->rows, top->now.nr, sizeof(*top->rows), compare_rows, top);
	return 0;
}

/* ---- text ---- */

/* A name from the file itself, as a static program has no other way */
static const char *user_name(uid_t uid)
{
	static char name[33];
	static uid_t last;
	struct passwd *pw;
	FILE *in;

	if (*name && uid == last)
		return name;
	last = uid;
	snprintf(name, sizeof(name), "%u", uid);
	in = fopen("/etc/passwd", "re");
	if (!in)
		return name;
	while ((pw = fgetpwent(in)))
		if (pw->pw_uid == uid) {
			snprintf(name, sizeof(name), "%s", pw->pw_name);
			break;
		}
	fclose(in);
	return name;
}

/* Prints as much of a line as the screen is wide */
__attribute__((format(printf, 2, 3)))
static void print_line(const struct top *top, const char *format, ...)
{
	char line[LINE_MAX_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (top->screen)
		printf("%.*s\033[K\r\n", (int)top->columns, line);
	else
		puts(line);
}

static const char *format_rate(char buf[static FMT_NS_LEN], double rate)
{
	if (rate < 0)
		return "-";
	snprintf(buf, FMT_NS_LEN, rate < 99.95 ? "%.1f" : "%.0f", rate);
	return buf;
}

static const char *format_bound(char buf[static FMT_NS_LEN], __u64 ns)
{
	char text[FMT_NS_LEN];

	if (!ns)
		return "-";
	snprintf(buf, FMT_NS_LEN, "<%.30s", format_ns(text, ns));
	return buf;
}

static const char *format_bytes(char buf[static FMT_NS_LEN], __u64 bytes)
{
	static const char units[] = "kMGT";
	double val = bytes / 1024.0;
	int i = 0;

	for (; val >= 1000 && i < 3; i++)
		val /= 1024;
	snprintf(buf, FMT_NS_LEN, val < 9.95 ? "%.1f%c" : "%.0f%c", val, units[i]);
	return buf;
}

static void print_row(const struct top *top, const struct row *row)
{
	char fired[FMT_NS_LEN], wakeups[FMT_NS_LEN], memory[FMT_NS_LEN];
	char late[FMT_NS_LEN], max[FMT_NS_LEN], next[FMT_NS_LEN];
	const struct wheel *w = row->w;

	print_line(top, "%7d %-8.8s %4d %-9.9s %9llu %7llu %8s %7s %8s %8s %8s %6s  %s%s",
		   w->pid, user_name(w->uid), w->fd, clock_name(w->clockid), w->armed,
		   w->ready, format_rate(fired, row->fired),
		   format_rate(wakeups, row->wakeups), format_bound(late, row->late_ns),
		   format_bound(max, row->late_max_ns),
		   row->next_ns == TWHEEL_NEVER ? "never" : format_ns(next, row->next_ns),
		   format_bytes(memory, w->memory), w->command,
		   w->holders > 1 ? " (shared)" : "");
}

static void print_table(const struct top *top)
{
	char fired_text[FMT_NS_LEN], memory_text[FMT_NS_LEN], hidden[64] = "";
	__u64 armed = 0, memory = 0;
	double fired = 0;
	size_t i, most = top->now.nr;

	for (i = 0; i < top->now.nr; i++) {
		armed += top->now.v[i].armed;
		memory += top->now.v[i].memory;
		fired += top->rows[i].fired > 0 ? top->rows[i].fired : 0;
	}
	if (top->now.hidden)
		snprintf(hidden, sizeof(hidden), "; %zu processes of others cannot be seen",
			 top->now.hidden);
	if (top->screen)
		fputs("\033[H", stdout);
	print_line(top, "%zu wheel%s, %llu armed, %s fired/s, %s of memory%s", top->now.nr,
		   top->now.nr == 1 ? "" : "s", armed, format_rate(fired_text, fired),
		   format_bytes(memory_text, memory), hidden);
	print_line(top, "by %s%s", keys[top->key].name, top->screen ?
		   "; keys: Fired Armed Late Next Memory Pid, Quit" : "");
	print_line(top, "%7s %-8s %4s %-9s %9s %7s %8s %7s %8s %8s %8s %6s  %s", "PID", "USER",
		   "FD", "CLOCK", "ARMED", "READY", "FIRED/s", "WAKE/s", "LATE 99%", "LATE MAX",
		   "NEXT IN", "MEMORY", "COMMAND");
	if (top->screen && most > top->lines - 4)
		most = top->lines - 4;
	for (i = 0; i < most; i++)
		print_row(top, &top->rows[i]);
	if (top->screen)
		fputs("\033[J", stdout);
	fflush(stdout);
}

/* ---- JSON ---- */

static void print_number(const char *name, bool known, double val)
{
	if (known)
		printf(",\"%s\":%.3f", name, val);
	else
		printf(",\"%s\":null", name);
}

static void print_ns(const char *name, bool known, __u64 ns)
{
	if (known)
		printf(",\"%s\":%llu", name, ns);
	else
		printf(",\"%s\":null", name);
}

static void print_json(const struct top *top)
{
	size_t i;

	for (i = 0; i < top->now.nr; i++) {
		const struct row *row = &top->rows[i];
		const struct wheel *w = row->w;

		printf("{\"type\":\"wheel\",\"pid\":%d,\"fd\":%d,\"uid\":%u,\"command\":",
		       w->pid, w->fd, w->uid);
		print_json_string(w->command);
		printf(",\"holders\":%u,\"clock\":\"%s\",\"tick_ns\":%llu,\"capacity\":%llu",
		       w->holders, clock_name(w->clockid), w->tick_ns, w->capacity);
		printf(",\"armed\":%llu,\"ready\":%llu,\"memory\":%llu,\"arms\":%llu",
		       w->armed, w->ready, w->memory, w->arms);
		printf(",\"fired\":%llu,\"wakeups\":%llu", w->fired, w->wakeups);
		print_number("fired_per_s", row->fired >= 0, row->fired);
		print_number("wakeups_per_s", row->wakeups >= 0, row->wakeups);
		print_ns("late_p99_below_ns", row->late_ns, row->late_ns);
		print_ns("late_max_below_ns", row->late_max_ns, row->late_max_ns);
		print_ns("next_wake_in_ns", row->next_ns != TWHEEL_NEVER, row->next_ns);
		puts("}");
	}
	printf("{\"type\":\"wheels\",\"wheels\":%zu,\"hidden_processes\":%zu}\n", top->now.nr,
	       top->now.hidden);
	fflush(stdout);
}

/* ---- the screen ---- */

static struct termios cooked;

static bool can_have_screen(void)
{
	const char *term = getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
	       strcmp(term, "dumb") && !tcgetattr(STDIN_FILENO, &cooked);
}

/* The other screen of the terminal, so that what was there comes back */
static void enter_screen(void)
{
	struct termios raw = cooked;

	raw.c_lflag &= ~(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs("\033[?1049h", stdout);
}

static void leave_screen(void)
{
	fputs("\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
}

static void measure_screen(struct top *top)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row < 5 || !size.ws_col)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	top->lines = size.ws_row;
	top->columns = size.ws_col;
}

static void print_all(struct top *top)
{
	if (top->opt->json) {
		print_json(top);
		return;
	}
	if (top->screen)
		measure_screen(top);
	print_table(top);
}

/* Returns whether to go on */
static bool press(struct top *top, char c)
{
	size_t i;

	if (!top->rows)
		return c != 'q';
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (c == keys[i].name[0])
			top->key = (unsigned char)i;
	qsort_r(top->rows, top->now.nr, sizeof(*top->rows), compare_rows, top);
	print_all(top);
	return c != 'q';
}

/* Sleeps until the next look; keys are heeded meanwhile. Returns whether to go on */
static bool sleep_until_look(struct top *top, int signals)
{
	struct pollfd pfd[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = top->screen ? STDIN_FILENO : -1, .events = POLLIN },
	};
	__u64 until = top->now_ns + (top->opt->interval_ns ? : INTERVAL_NS), now;
	struct timespec ts;
	char c;

	while ((now = now_ns()) < until) {
		ts.tv_sec = (until - now) / NSEC_PER_SEC;
		ts.tv_nsec = (until - now) % NSEC_PER_SEC;
		if (ppoll(pfd, ARRAY_SIZE(pfd), &ts, NULL) < 0 || pfd[0].revents)
			return false;
		if (!pfd[1].revents)
			continue;
		if (read(STDIN_FILENO, &c, 1) != 1 || !press(top, c))
			return false;
	}
	return true;
}

/* The first look only serves to know what has changed at the second */
static int watch(struct top *top, int signals)
{
	if (look(top))
		return EXIT_DEVICE;
	while (sleep_until_look(top, signals)) {
		if (look(top) || make_rows(top))
			return EXIT_DEVICE;
		print_all(top);
		if (top->opt->once || ferror(stdout))
			break;
	}
	return EXIT_RUN_OK;
}

int show_top(const struct options *opt)
{
	struct top top = { .opt = opt, .key = opt->sort };
	int signals, ret;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0) {
		perror("twheelctl: signalfd");
		return EXIT_DEVICE;
	}
	top.screen = !opt->json && !opt->once && can_have_screen();
	if (top.screen)
		enter_screen();
	ret = watch(&top, signals);
	if (top.screen)
		leave_screen();
	close(signals);
	free(top.rows);
	free_wheels(&top.before);
	free_wheels(&top.now);
	return ret;
}

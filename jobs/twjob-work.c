// SPDX-License-Identifier: GPL-2.0
/*
 * twjob work: takes rows of a queue, and runs a command for each.
 *
 * One thread, one poll(). PostgreSQL is waited for when it is asked something; commands run
 * meanwhile. While it cannot be reached nothing is taken, and what a command came to is kept
 * until it can. If that takes longer than rows stay invisible somebody else may have them by
 * then, and they are done twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "twjob.h"

#define NS_PER_SEC	UINT64_C(1000000000)
/* How often to look for rows without being told, and to try to connect again. */
#define POLL_NS		NS_PER_SEC
#define HERE_NS		(10 * NS_PER_SEC)	/* an agent is thought gone after 30 s */
/* Between SIGTERM and SIGKILL for the command of a row that is not ours any more. */
#define GRACE_NS	(5 * NS_PER_SEC)
#define MESSAGE_MAX	1000

enum slot_state {
	FREE,
	RUNNING,
	ENDED,	/* what it came to is not recorded yet */
};

/**
 * struct slot - a command that runs, and its row
 * @state:     what is to be done with it
 * @seq:       of the row
 * @taken:     the number of the attempt: these are as PostgreSQL has them, as text
 * @job:       its id
 * @pid:       of the command
 * @lost:      somebody else has the row
 * @status:    of waitpid(), once it has ended
 * @err:       the pipe that is its standard error, or -1
 * @message:   the last line from there that was not empty
 * @line:      the line that has not ended yet
 * @line_len:  of that
 * @extend_ns: when its time is to be extended; or, if it is lost, when it is killed
 */
struct slot {
	enum slot_state state;
	char seq[24], taken[16], job[24];
	pid_t pid;
	bool lost;
	int status;
	int err;
	char message[MESSAGE_MAX + 1], line[MESSAGE_MAX + 1];
	size_t line_len;
	uint64_t extend_ns;
};

/**
 * struct worker - all of it
 * @opt:      of the command line
 * @service:  whose queue it takes from
 * @slots:    for commands
 * @nr_slots: how many
 * @signals:  a signalfd
 * @visible:  for how long a row that was taken is invisible, as text
 * @was_down: it has been told that a statement or a connection failed
 * @db:       NULL while there is no connection
 * @floor:    nothing below is looked for, but now and then
 * @look_ns:  when to look from 0 on
 * @here_ns:  when to say that the agent is there, if nothing is taken until then
 * @retry_ns: when to connect again
 * @empty:    there was nothing the last time, and nothing has happened since
 * @stopping: a signal has come
 * @stop_ns:  when it is not waited for PostgreSQL any more to record what commands came to
 * @killed:   a second signal has come
 * @failed:   something that will not go away: nothing more is taken
 */
struct worker {
	const struct options *opt;
	const char *service;
	PGconn *db;
	struct slot *slots;
	int nr_slots;
	int signals;
	int64_t floor;
	uint64_t look_ns, here_ns, retry_ns, stop_ns;
	char visible[40];
	bool empty, stopping, killed, failed, was_down;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static int count(const struct worker *w, enum slot_state state)
{
	int nr = 0;

	for (int i = 0; i < w->nr_slots; i++)
		nr += w->slots[i].state == state;
	return nr;
}

/* ------------------------------------------------------------------ PostgreSQL */

static void disconnect(struct worker *w)
{
	PQfinish(w->db);
	w->db = NULL;
	w->retry_ns = now_ns() + POLL_NS;
}

/* What passes by itself: no room, locks, a restart, a standby that is to be promoted. */
static bool is_passing(const char *state)
{
	return !strncmp(state, "25", 2) || !strncmp(state, "40", 2) || !strncmp(state, "53", 2) ||
	       !strncmp(state, "55", 2) || !strncmp(state, "57", 2) || !strncmp(state, "08", 2);
}

/* The result if there is one. If not, it is tried again later on another connection. */
static PGresult *query(struct worker *w, const char *sql, int nr, const char *const *params)
{
	PGresult *r = PQexecParams(w->db, sql, nr, NULL, params, NULL, NULL, 1);
	ExecStatusType status = PQresultStatus(r);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return r;
	if (!w->was_down)
		tell_error(r, w->db);
	w->was_down = true;
	if (PQstatus(w->db) == CONNECTION_OK && !is_passing(sqlstate_of(r)))
		w->failed = true;
	PQclear(r);
	disconnect(w);
	return NULL;
}

static void reconnect(struct worker *w)
{
	char why[256];
	PGresult *r;

	if (w->db || now_ns() < w->retry_ns)
		return;
	w->db = open_db(w->opt->conninfo, why);
	if (!w->db) {
		if (!w->was_down)
			tell("%s", why);
		w->was_down = true;
		w->retry_ns = now_ns() + POLL_NS;
		return;
	}
	r = query(w, "listen twheel_queue", 0, NULL);
	PQclear(r);
	if (!r)
		return;
	w->look_ns = 0;
	w->empty = false;
}

/* Something was answered. */
static void is_up(struct worker *w)
{
	if (w->was_down)
		tell("PostgreSQL answers again");
	w->was_down = false;
}

/* The payload names services, with spaces between. */
static bool names_service(const char *payload, const char *service)
{
	size_t len = strlen(service);

	for (const char *s = payload; (s = strstr(s, service)); s++) {
		if ((s == payload || s[-1] == ' ') && (!s[len] || s[len] == ' '))
			return true;
	}
	return false;
}

static void take_notifications(struct worker *w)
{
	PGnotify *n;

	if (!w->db)
		return;
	if (!PQconsumeInput(w->db)) {
		if (!w->was_down)
			tell("the connection to PostgreSQL was lost");
		w->was_down = true;
		disconnect(w);
		return;
	}
	while ((n = PQnotifies(w->db))) {
		if (names_service(n->extra, w->service))
			w->empty = false;
		PQfreemem(n);
	}
}

/* -------------------------------------------------------------------- commands */

static void kill_group(const struct slot *s, int signal)
{
	if (kill(-s->pid, signal) && errno == ESRCH)
		kill(s->pid, signal); /* has no group of its own yet */
}

static void line_ends(struct slot *s)
{
	s->line[s->line_len] = '\0';
	if (s->line_len)
		memcpy(s->message, s->line, s->line_len + 1);
	s->line_len = 0;
}

static void read_err(struct slot *s)
{
	char part[4096];
	ssize_t len;

	while ((len = read(s->err, part, sizeof(part))) > 0) {
		fwrite(part, 1, (size_t)len, stderr);
		for (ssize_t i = 0; i < len; i++) {
			if (part[i] == '\n')
				line_ends(s);
			else if (s->line_len < MESSAGE_MAX)
				s->line[s->line_len++] = part[i] ? part[i] : '?';
		}
	}
	if (!len || errno != EAGAIN) {
		close(s->err);
		s->err = -1;
	}
}

/* The payload in a file of its own: the command need not read it. */
static int payload_file(const char *data, size_t len)
{
	int fd = memfd_create("payload", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	while (len) {
		ssize_t done = write(fd, data, len);

		if (done < 0) {
			close(fd);
			return -1;
		}
		data += done;
		len -= (size_t)done;
	}
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static _Noreturn void be_command(const struct worker *w, int in, int err, pid_t parent)
{
	sigset_t none;

	setpgid(0, 0);
	/* If the worker dies its rows are for others soon. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(126);
	execvp(w->opt->command[0], w->opt->command);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", w->opt->command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void set_environment(const struct worker *w, const PGresult *r, int row)
{
	setenv("TWJOB_SERVICE", w->service, 1);
	setenv("TWJOB_AGENT", w->opt->agent ? w->opt->agent : "", 1);
	setenv("TWJOB_ID", PQgetvalue(r, row, 1), 1);
	setenv("TWJOB_ATTEMPT", PQgetvalue(r, row, 2), 1);
	setenv("TWJOB_DUE", PQgetvalue(r, row, 3), 1);
	setenv("TWJOB_IDEM", PQgetvalue(r, row, 4), 1);
	setenv("TWJOB_TAG", PQgetvalue(r, row, 5), 1);
}

/* False if there is no room for another process. */
static bool start(struct worker *w, struct slot *s, const PGresult *r, int row)
{
	int in = payload_file(PQgetvalue(r, row, 6), (size_t)PQgetlength(r, row, 6));
	int err[2] = { -1, -1 };
	pid_t parent = getpid();

	s->pid = -1;
	if (in >= 0 && !pipe2(err, O_CLOEXEC)) {
		set_environment(w, r, row);
		s->pid = fork();
	}
	if (!s->pid)
		be_command(w, in, err[1], parent);
	if (in >= 0)
		close(in);
	if (err[1] >= 0)
		close(err[1]);
	s->err = err[0];
	if (s->pid > 0) {
		setpgid(s->pid, s->pid);
		fcntl(s->err, F_SETFL, O_NONBLOCK);
		return true;
	}
	snprintf(s->message, sizeof(s->message), "cannot start a command: %s", strerror(errno));
	if (s->err >= 0)
		close(s->err);
	s->err = -1;
	return false;
}

static void reap(struct worker *w)
{
	for (int i = 0; i < w->nr_slots; i++) {
		struct slot *s = &w->slots[i];

		if (s->state != RUNNING || waitpid(s->pid, &s->status, WNOHANG) <= 0)
			continue;
		/* Others may have its standard error still: they are not waited for. */
		if (s->err >= 0)
			read_err(s);
		if (s->err >= 0)
			close(s->err);
		s->err = -1;
		line_ends(s);
		s->state = s->lost ? FREE : ENDED;
	}
}

static void say_why(struct slot *s)
{
	if (*s->message)
		return;
	if (WIFSIGNALED(s->status))
		snprintf(s->message, sizeof(s->message), "ended by SIG%s",
			 sigabbrev_np(WTERMSIG(s->status)));
	else
		snprintf(s->message, sizeof(s->message), "exit status %d",
			 WEXITSTATUS(s->status));
}

/* ------------------------------------------------------------------------ rows */

static void is_lost(struct slot *s)
{
	tell("job %s: another consumer has it", s->job);
	if (s->state != RUNNING) {
		s->state = FREE;
		return;
	}
	s->lost = true;
	s->extend_ns = now_ns() + GRACE_NS;
	kill_group(s, SIGTERM);
}

/*
 * Records what a command came to. If that was done, and the answer was lost, it looks as if
 * somebody else had the row: that is all the same.
 */
static void settle(struct worker *w, struct slot *s)
{
	bool ok = WIFEXITED(s->status) && !WEXITSTATUS(s->status);
	const char *params[] = { s->seq, s->taken, s->message };
	const char *answer;
	PGresult *r;

	if (ok) {
		r = query(w, "select case when twheel.finish($1::bigint, $2::integer)"
			  " then 'done' else 'lost' end", 2, params);
	} else {
		say_why(s);
		clean(s->message);
		r = query(w, "select twheel.fail($1::bigint, $2::integer, $3::text)", 3, params);
	}
	if (!r)
		return;
	is_up(w);
	answer = PQgetvalue(r, 0, 0);
	if (!strcmp(answer, "lost"))
		is_lost(s);
	else if (!ok)
		tell("job %s failed (%s): %s", s->job,
		     strcmp(answer, "dead") ? "again later" : "dead", s->message);
	PQclear(r);
	s->state = FREE;
	w->empty = false; /* the next one with its ordering key can be had */
}

static void extend(struct worker *w, struct slot *s)
{
	const char *params[] = { s->seq, s->taken, w->visible };
	uint64_t now = now_ns();
	PGresult *r = query(w, "select twheel.extend($1::bigint, $2::integer, $3::interval)", 3,
			    params);

	if (!r)
		return;
	is_up(w);
	s->extend_ns = now + (uint64_t)w->opt->visible_us * 1000 / 3;
	if (!*PQgetvalue(r, 0, 0))
		is_lost(s);
	PQclear(r);
}

static struct slot *free_slot(struct worker *w)
{
	for (int i = 0; i < w->nr_slots; i++) {
		if (w->slots[i].state == FREE)
			return &w->slots[i];
	}
	return NULL;
}

/* Rows in order of seq: the first of an ordering key is begun first. */
static void begin(struct worker *w, const PGresult *r, int row, uint64_t now)
{
	struct slot *s = free_slot(w);
	int64_t seq = strtoll(PQgetvalue(r, row, 0), NULL, 10);

	memset(s, 0, sizeof(*s));
	snprintf(s->seq, sizeof(s->seq), "%s", PQgetvalue(r, row, 0));
	snprintf(s->job, sizeof(s->job), "%s", PQgetvalue(r, row, 1));
	snprintf(s->taken, sizeof(s->taken), "%s", PQgetvalue(r, row, 2));
	s->extend_ns = now + (uint64_t)w->opt->visible_us * 1000 / 3;
	s->state = RUNNING;
	if (!start(w, s, r, row)) {
		s->status = 126 << 8;
		s->state = ENDED;
	}
	if (seq >= w->floor)
		w->floor = seq + 1;
}

/* How many rows came, or -1. */
static int take(struct worker *w, int64_t floor)
{
	char most[12], from[24];
	const char *params[] = { w->service, most, w->visible, from, w->opt->agent };
	uint64_t now = now_ns();
	PGresult *r;
	int nr;

	snprintf(most, sizeof(most), "%d", count(w, FREE));
	snprintf(from, sizeof(from), "%lld", (long long)floor);
	r = query(w, "select seq::text, job::text, taken::text,"
		  " to_char(due at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
		  " idem::text, coalesce(tag, ''), payload"
		  " from twheel.take($1, $2::integer, $3::interval, $4::bigint, coalesce($5, ''))"
		  " t order by t.seq", 5, params);
	if (!r)
		return -1;
	is_up(w);
	nr = PQntuples(r);
	for (int row = 0; row < nr; row++)
		begin(w, r, row, now);
	PQclear(r);
	return nr;
}

static void take_some(struct worker *w)
{
	uint64_t now = now_ns();
	int nr = 0;

	if (now >= w->look_ns) {
		w->empty = false;
		w->floor = 0;
		w->look_ns = now + POLL_NS;
	}
	while (w->db && !w->empty && count(w, FREE)) {
		nr = take(w, w->floor);
		if (nr)
			continue;
		w->empty = !w->floor;
		w->floor = 0;
	}
}

/* Of an agent that does not take, as all of its commands run, would be thought that it is gone. */
static void tell_that_here(struct worker *w)
{
	const char *params[] = { w->service, w->opt->agent };
	uint64_t now = now_ns();
	PGresult *r;

	if (!w->opt->agent || count(w, FREE) || now < w->here_ns)
		return;
	r = query(w, "select twheel.agent_is_here($1, $2)", 2, params);
	if (!r)
		return;
	is_up(w);
	w->here_ns = now + HERE_NS;
	PQclear(r);
}

/* ------------------------------------------------------------------------ loop */

/* How long to wait, in ms. */
static int time_left(const struct worker *w)
{
	uint64_t now = now_ns(), until = w->db ? w->look_ns : w->retry_ns;

	if (w->db && !w->empty && !w->stopping && count(w, FREE))
		return 0;
	for (int i = 0; i < w->nr_slots; i++) {
		const struct slot *s = &w->slots[i];

		if (s->state == RUNNING && (w->db || s->lost) && s->extend_ns < until)
			until = s->extend_ns;
	}
	if (until > now + POLL_NS)
		until = now + POLL_NS;
	return until > now ? (int)((until - now) / 1000000) + 1 : 0;
}

static void take_signals(struct worker *w)
{
	struct signalfd_siginfo info;

	while (read(w->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		if (w->stopping) {
			w->killed = true;
			for (int i = 0; i < w->nr_slots; i++) {
				if (w->slots[i].state == RUNNING)
					kill_group(&w->slots[i], SIGKILL);
			}
		} else if (count(w, RUNNING)) {
			tell("waiting for %d commands; a second signal kills them",
			     count(w, RUNNING));
		}
		if (!w->stopping)
			w->stop_ns = now_ns() + (uint64_t)w->opt->visible_us * 1000;
		w->stopping = true;
	}
}

static void wait_for_events(struct worker *w)
{
	struct pollfd *fds = xcalloc((size_t)w->nr_slots + 2, sizeof(*fds));
	nfds_t nr = 0;

	fds[nr++] = (struct pollfd){ .fd = w->signals, .events = POLLIN };
	fds[nr++] = (struct pollfd){ .fd = w->db ? PQsocket(w->db) : -1, .events = POLLIN };
	for (int i = 0; i < w->nr_slots; i++) {
		fds[nr++] = (struct pollfd){
			.fd = w->slots[i].state == RUNNING ? w->slots[i].err : -1,
			.events = POLLIN,
		};
	}
	if (poll(fds, nr, time_left(w)) > 0) {
		for (int i = 0; i < w->nr_slots; i++) {
			if (fds[i + 2].revents)
				read_err(&w->slots[i]);
		}
		take_signals(w);
	}
	free(fds);
}

static void look_at_slots(struct worker *w)
{
	uint64_t now = now_ns();

	for (int i = 0; i < w->nr_slots; i++) {
		struct slot *s = &w->slots[i];

		if (s->state == ENDED && w->db)
			settle(w, s);
		if (s->state != RUNNING || now < s->extend_ns)
			continue;
		if (s->lost)
			kill_group(s, SIGKILL);
		else if (w->db)
			extend(w, s);
	}
}

static bool is_over(const struct worker *w)
{
	if (count(w, RUNNING))
		return false;
	if (w->failed)
		return true;
	if (w->stopping)
		return !count(w, ENDED) || (!w->db && (w->killed || now_ns() >= w->stop_ns));
	return w->opt->until_empty && w->empty && !count(w, ENDED);
}

static void run(struct worker *w)
{
	while (!is_over(w)) {
		wait_for_events(w);
		reap(w);
		if (!w->failed)
			reconnect(w);
		look_at_slots(w);
		if (w->db && !w->stopping && !w->failed)
			take_some(w);
		if (w->db && !w->stopping && !w->failed)
			tell_that_here(w);
		take_notifications(w);
	}
}

/* Before jobs lose attempts by that. */
static void check_command(const char *name)
{
	const char *path = getenv("PATH");
	char file[4096];

	if (strchr(name, '/')) {
		if (access(name, X_OK))
			die(STATUS_FAILED, "cannot run %s: %s", name, strerror(errno));
		return;
	}
	for (const char *p = path ? path : "/bin:/usr/bin"; p; p = *p ? p + 1 : NULL) {
		size_t len = strcspn(p, ":");

		snprintf(file, sizeof(file), "%.*s/%s", len ? (int)len : 1, len ? p : ".", name);
		if (!access(file, X_OK))
			return;
		p += len;
		if (!*p)
			break;
	}
	die(STATUS_FAILED, "cannot run %s: it is not in PATH", name);
}

static void check_service(struct worker *w)
{
	const char *agent[] = { w->service, w->opt->agent };
	PGresult *r = ask(w->db, "select kind from twheel.job_callback_service where service = $1",
			  1, &w->service);

	if (!PQntuples(r))
		die(STATUS_NONE, "there is no service '%s'", w->service);
	if (strcmp(PQgetvalue(r, 0, 0), "queue"))
		die(STATUS_USAGE, "service '%s' is of kind %s: it has no queue",
		    w->service, PQgetvalue(r, 0, 0));
	PQclear(r);
	PQclear(ask(w->db, "listen twheel_queue", 0, NULL));
	if (w->opt->agent)
		PQclear(ask(w->db, "select twheel.agent_is_here($1, $2)", 2, agent));
}

static void open_signals(struct worker *w)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	w->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (w->signals < 0)
		die(STATUS_FAILED, "cannot open a signalfd: %s", strerror(errno));
}

int work(const struct options *opt, const char *service)
{
	struct worker w = { .opt = opt, .service = service, .nr_slots = (int)opt->nr_workers };
	char why[256];

	check_command(opt->command[0]);
	w.db = open_db(opt->conninfo, why);
	if (!w.db)
		die(STATUS_FAILED, "%s", why);
	check_service(&w);
	open_signals(&w);
	w.slots = xcalloc(opt->nr_workers, sizeof(*w.slots));
	snprintf(w.visible, sizeof(w.visible), "%lld us", (long long)opt->visible_us);
	run(&w);
	if (count(&w, ENDED))
		tell("the results of %d commands are not recorded: other consumers have their jobs",
		     count(&w, ENDED));
	if (w.failed || count(&w, ENDED)) {
		free(w.slots);
		return STATUS_FAILED;
	}
	PQfinish(w.db);
	close(w.signals);
	free(w.slots);
	return 0;
}

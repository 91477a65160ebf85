// SPDX-License-Identifier: GPL-2.0
/*
 * How a process of twheeld is replaced by another one, of the same version or the next, with
 * the same configuration or a new one, while its jobs go on. On SIGHUP:
 *
 *	predecessor                                   successor
 *
 *	starts the successor ----------- hello -----> reads its configuration, connects to the
 *	and does what it always does                  database under the same uuid, knows services
 *	                     <---------- ready ------ when all that stands
 *	comes to rest: what is under way is waited
 *	for, for a moment, and no look begins
 *	its memory, the wheel of its jobs ---- give ->
 *	begins nothing more
 *	                     <---------- taken ------ beats, fires and listens from now on
 *	forgets its jobs -------------- look -------> looks for what was committed meanwhile, if
 *	lets its calls and requests end               there may be something
 *	ends
 *
 * Nothing is read from the database for it, nor are shards given away: to all others it is the
 * same node. Before "taken" all goes back to where it was if the successor ends, or takes too long:
 * the predecessor has everything still, and the successor has touched nothing, not even the wheel.
 *
 * Why nothing is begun twice or missed: what is handed over is what was seen, as all is that is in
 * the memory of a node. Whatever becomes of rows meanwhile is found by statements to be not as it
 * was, whoever of the two sends them, and with the same fence; what was committed that neither
 * has in memory is found by the next look, which begins where the last one says. A statement of the
 * predecessor that is still under way is as one of which a node has not heard for a while. Calls
 * that it has marked it makes, by its own lease, which lasts no longer than that of the node would
 * if it had stopped.
 *
 * A successor that cannot take what it is given, as it is of another layout or the database is
 * another one, joins as any node does, and says so: then the predecessor gives its shards away, as
 * when it ends. So does one whose predecessor ended before it was given anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "handover.h"

#define ENVIRONMENT	"TWHEELD_PREDECESSOR"
#define CHILD_FD	3

#define START_NS	(30 * TWHEEL_SEC)	/* to be ready */
#define REST_NS		(500 * TWHEEL_MSEC)	/* for what is under way */
#define TAKE_NS		(10 * TWHEEL_SEC)

enum said { HELLO, READY, GIVE, TAKEN, ANEW, LOOK, STANDS };

/** struct message - with up to two descriptors: HELLO has where to listen, GIVE memory and wheel */
struct message {
	uint32_t said;		/* enum said */
	uint8_t has_listen, has_wheel, pad[2];
	uint8_t node[16];	/* of HELLO */
};

/* ----------------------------------------------------------------------- messages */

#define MAX_FDS	2

/* Whether it was sent; there is room for all that are ever sent. */
static bool say(int fd, const struct message *m, const int *fds, int nr_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control = {};
	struct iovec iov = { .iov_base = (void *)m, .iov_len = sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (nr_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nr_fds * sizeof(int));
	}
	return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*m);
}

static bool say_word(int fd, enum said said)
{
	const struct message m = { .said = said };

	return say(fd, &m, NULL, 0);
}

/* 1, 0 if there is none now, or -1 at the end. @fds has MAX_FDS, -1 where none came. */
static int hear(int fd, struct message *m, int *fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = m, .iov_len = sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c;
	ssize_t len = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	fds[0] = -1;
	fds[1] = -1;
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (len != sizeof(*m))
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 1;
}

static void close_fds(const int *fds)
{
	int i;

	for (i = 0; i < MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* -------------------------------------------------------------------- predecessor */

static void hear_successor(struct loop_fd *fd, uint32_t events);

static void successor_time(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static struct node *node_of(struct successor *s)
{
	return TWHEEL_CONTAINER(s, struct node, successor);
}

/* Has the loop forget it; the process is let be. */
static void part(struct node *n)
{
	struct successor *s = &n->successor;

	loop_set(&n->loop, &s->fd, 0);
	close(s->fd.fd);
	twheel_cancel(n->loop.wheel, &s->timer);
	s->phase = SUCC_NONE;
	s->has_all = false;
}

/* Ends it, and tells how it ended. */
static void end_successor(struct node *n, char *how, size_t size)
{
	int status = 0;

	part(n);
	kill(n->successor.pid, SIGKILL);
	waitpid(n->successor.pid, &status, 0);
	if (WIFEXITED(status))
		snprintf(how, size, "it ended with status %d", WEXITSTATUS(status));
	else
		snprintf(how, size, "it was killed by signal %d", WTERMSIG(status));
}

void successor_end(struct node *n)
{
	char how[64];

	if (n->successor.phase == SUCC_STANDS)
		part(n);
	else if (n->successor.phase != SUCC_NONE)
		end_successor(n, how, sizeof(how));
}

/* All goes on here. */
static void failed(struct node *n, const char *why)
{
	char how[64];

	end_successor(n, how, sizeof(how));
	log_error("replace failed=%s", quoted(why ?: how));
	sd_notify(0, "READY=1");
	horizon_rest(n, false);
	horizon_look(n);
	plan_look(n);
}

/* Without what the process has that it was started for, but for where to find this one. */
static char **environment(char *found)
{
	static const char not_its[] = "WATCHDOG_PID=";
	size_t nr = 0, i;
	char **env;

	while (environ[nr])
		nr++;
	env = xcalloc(nr + 2, sizeof(*env));
	for (i = 0, nr = 0; environ[i]; i++)
		if (strncmp(environ[i], not_its, strlen(not_its)))
			env[nr++] = environ[i];
	env[nr] = found;
	return env;
}

/* The socket is its descriptor 3, and it has no others but those of its terminal. */
static int spawn(struct node *n, int fd)
{
	static char found[sizeof(ENVIRONMENT) + 16];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all;
	char **env;
	int error;

	snprintf(found, sizeof(found), ENVIRONMENT "=%d", CHILD_FD);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, CHILD_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_FD + 1);
	posix_spawnattr_init(&attr);
	/* Signals stay blocked, so that one which comes too early does not end it. */
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
	env = environment(found);
	error = posix_spawn(&n->successor.pid, n->program, &actions, &attr, n->argv, env);
	free(env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static int say_hello(struct node *n, int fd)
{
	int listen_fd = api_listens(n);
	struct message m = { .said = HELLO, .has_listen = listen_fd >= 0 };

	memcpy(m.node, n->lease.node, sizeof(m.node));
	return say(fd, &m, &listen_fd, m.has_listen) ? 0 : errno;
}

void successor_start(struct node *n)
{
	struct successor *s = &n->successor;
	char how[64];
	int fds[2], error;

	/* Before this one has taken over there is nothing that it could hand over. */
	if (n->draining || n->predecessor.waits ||
	    (s->phase != SUCC_NONE && s->phase != SUCC_STARTS)) {
		log_warn("replace ignored=%s", n->draining ? "draining" : "\"under way\"");
		return;
	}
	/* That of a configuration that was wrong may wait for its database. */
	if (s->phase == SUCC_STARTS)
		end_successor(n, how, sizeof(how));
	error = getpid() == 1 ? EPERM :
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) ? errno : 0;
	if (!error) {
		error = say_hello(n, fds[0]) ?: spawn(n, fds[1]);
		close(fds[1]);
		if (error)
			close(fds[0]);
	}
	if (error) {
		log_error("replace failed=%s", getpid() == 1 ? "\"as process 1 it cannot end\"" :
			  quoted(strerror(error)));
		/* It was told that another one was being started. */
		sd_notify(0, "READY=1");
		return;
	}
	log_note("replace pid=%d", s->pid);
	sd_notify(0, "RELOADING=1");
	s->phase = SUCC_STARTS;
	s->fd.fn = hear_successor;
	s->fd.fd = fds[0];
	loop_set(&n->loop, &s->fd, EPOLLIN);
	loop_arm(&n->loop, &s->timer, START_NS, successor_time);
}

static bool is_at_rest(const struct node *n)
{
	return !n->fire.db.first && !n->finish.sent && !n->plan.under_way && !n->lease.taking &&
	       !horizon_looks(n);
}

/* In memory that has no name and is not changed any more. */
static int memory_of(const struct given *g, const struct buf *more)
{
	int fd = memfd_create("twheeld", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t done = 0;
	ssize_t len = -1;

	if (fd < 0)
		return -1;
	if (write(fd, g, sizeof(*g)) == sizeof(*g))
		for (; done < more->len; done += len) {
			len = write(fd, more->data + done, more->len - done);
			if (len <= 0)
				break;
		}
	if (done == more->len &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return fd;
	close(fd);
	return -1;
}

/* When this process will have ended at the latest: it waits for those before it. */
static uint64_t ends_ns(const struct node *n)
{
	uint64_t at_ns = boottime_ns() + TAKE_NS + n->config->drain_ms * TWHEEL_MSEC;

	return at_ns > n->predecessor.ends_ns ? at_ns : n->predecessor.ends_ns;
}

static void give(struct node *n)
{
	struct given g = {
		.magic = GIVEN_MAGIC, .is_joined = n->lease.joined, .ends_ns = ends_ns(n),
	};
	int fds[MAX_FDS] = { -1, horizon_wheel_fd(n) };
	struct message m = { .said = GIVE, .has_wheel = fds[1] >= 0 };
	struct buf more = {};

	lease_give(n, &g, &more);
	horizon_give(n, &g, &more);
	fds[0] = memory_of(&g, &more);
	buf_free(&more);
	if (fds[0] < 0 || !say(n->successor.fd.fd, &m, fds, 1 + m.has_wheel)) {
		failed(n, strerror(errno));
	} else {
		horizon_rest(n, true);
		n->successor.phase = SUCC_TAKES;
		n->successor.is_behind = false;
		loop_arm(&n->loop, &n->successor.timer, TAKE_NS, successor_time);
	}
	if (fds[0] >= 0)
		close(fds[0]);
}

void successor_flush(struct node *n)
{
	struct successor *s = &n->successor;

	if (s->phase == SUCC_RESTS && (is_at_rest(n) || boottime_ns() >= s->rest_until_ns))
		give(n);
}

static void successor_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct successor *s = TWHEEL_CONTAINER(t, struct successor, timer);
	enum successor_phase phase = s->phase;

	(void)w;
	(void)missed;
	/* It may be this process that was stopped. */
	hear_successor(&s->fd, EPOLLIN);
	/* Of SUCC_RESTS successor_flush() sees to it. */
	if (s->phase != phase)
		return;
	if (s->phase == SUCC_STARTS)
		failed(node_of(s), "it is not ready in time");
	else if (s->phase == SUCC_TAKES)
		failed(node_of(s), "it does not take over");
}

static void stands(struct node *n, bool anew)
{
	struct successor *s = &n->successor;

	s->phase = SUCC_STANDS;
	s->has_all = !anew;
	twheel_cancel(n->loop.wheel, &s->timer);
	sd_notifyf(0, "MAINPID=%d", s->pid);
	if (anew)
		node_drain(n);
	else
		node_leave(n);
	if (s->is_behind)
		say_word(s->fd.fd, LOOK);
	say_word(s->fd.fd, STANDS);
}

static void hear_successor(struct loop_fd *fd, uint32_t events)
{
	struct successor *s = TWHEEL_CONTAINER(fd, struct successor, fd);
	struct node *n = node_of(s);
	struct message m;
	int fds[MAX_FDS], ret = hear(fd->fd, &m, fds);

	(void)events;
	if (!ret)
		return;
	close_fds(fds);
	if (s->phase == SUCC_STANDS) {
		if (ret < 0)
			part(n);
	} else if (ret > 0 && m.said == READY && s->phase == SUCC_STARTS) {
		s->phase = SUCC_RESTS;
		s->rest_until_ns = boottime_ns() + REST_NS;
		loop_arm(&n->loop, &s->timer, REST_NS, successor_time);
	} else if (ret > 0 && m.said == TAKEN && s->phase == SUCC_TAKES) {
		stands(n, false);
	} else if (ret > 0 && m.said == ANEW && s->phase == SUCC_TAKES) {
		stands(n, true);
	} else {
		failed(n, NULL);
	}
}

void successor_look(struct node *n)
{
	if (n->successor.phase == SUCC_STANDS)
		say_word(n->successor.fd.fd, LOOK);
}

/* ---------------------------------------------------------------------- successor */

static void hear_predecessor(struct loop_fd *fd, uint32_t events);

int predecessor_open(struct node *n)
{
	const char *text = getenv(ENVIRONMENT);
	struct predecessor *p = &n->predecessor;
	struct message m;
	int fds[MAX_FDS], fd;

	p->listen_fd = -1;
	if (!text)
		return 0;
	fd = atoi(text);
	unsetenv(ENVIRONMENT);
	if (fd <= STDERR_FILENO || fcntl(fd, F_SETFD, FD_CLOEXEC) || hear(fd, &m, fds) <= 0 ||
	    m.said != HELLO || (m.has_listen && fds[0] < 0)) {
		log_error("start-failed what=" ENVIRONMENT);
		return -1;
	}
	p->fd = (struct loop_fd){ .fn = hear_predecessor, .fd = fd };
	p->waits = true;
	p->listen_fd = fds[0];
	memcpy(p->node, m.node, sizeof(p->node));
	loop_set(&n->loop, &p->fd, EPOLLIN);
	return 0;
}

static bool is_ready(const struct node *n)
{
	const struct db *const all[] = {
		&n->lease.db, &n->services.db, &n->horizon.db, &n->plan.db, &n->fire.db,
		&n->finish.db,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i]->state != DB_UP)
			return false;
	return *n->lease.identity.is && n->services.loaded && api_is_up(n) && submit_is_open(n);
}

void predecessor_flush(struct node *n)
{
	struct predecessor *p = &n->predecessor;

	if (!p->waits || p->told || n->draining || !is_ready(n))
		return;
	p->told = true;
	say_word(p->fd.fd, READY);
}

bool predecessor_goes_on(const struct node *n)
{
	return n->predecessor.fd.events && boottime_ns() < n->predecessor.ends_ns;
}

/* Nothing more is to come from it. */
static void forget(struct node *n)
{
	struct predecessor *p = &n->predecessor;

	loop_set(&n->loop, &p->fd, 0);
	close(p->fd.fd);
	p->fd.fd = -1;
}

static void stand(struct node *n)
{
	struct predecessor *p = &n->predecessor;

	p->waits = false;
	api_serve(n);
	/* Connections to where nobody listens any more are to be refused. */
	if (p->listen_fd >= 0)
		close(p->listen_fd);
	p->listen_fd = -1;
}

/* What can be taken, or NULL, after it was told why. */
static const struct given *check(const struct node *n, int fd, size_t *size)
{
	const struct given *g = MAP_FAILED;
	const char *why = "it is of another layout";
	struct stat st;

	*size = 0;
	if (fd >= 0 && !fstat(fd, &st) && (size_t)st.st_size >= sizeof(*g)) {
		*size = st.st_size;
		g = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	if (g == MAP_FAILED) {
		log_warn("take-over not_taken=%s", quoted(why));
		return NULL;
	}
	if (!memcmp(g->magic, GIVEN_MAGIC, sizeof(g->magic)) && *size == given_size(g)) {
		if (!g->is_joined)
			why = "it had not joined";
		else if (memcmp(g->node, n->lease.node, sizeof(g->node)))
			why = "it has joined anew";
		else if (strncmp(g->identity, n->lease.identity.is, sizeof(g->identity)))
			why = "another database";
		else
			return g;
	}
	log_warn("take-over not_taken=%s", quoted(why));
	munmap((void *)g, *size);
	return NULL;
}

/* From "taken" on the wheel is ours, and is closed if it cannot be used. */
static void take(struct node *n, const int *fds)
{
	struct predecessor *p = &n->predecessor;
	size_t size;
	const struct given *g = check(n, fds[0], &size);
	bool adopted;

	if (!g || !say_word(p->fd.fd, TAKEN)) {
		if (g)
			munmap((void *)g, size);
		close_fds(fds);
		say_word(p->fd.fd, ANEW);
		lease_join_anew(n);
		stand(n);
		return;
	}
	close(fds[0]);
	p->ends_ns = g->ends_ns;
	adopted = horizon_adopt(n, fds[1], g->capacity);
	lease_take(n, g);
	horizon_take(n, g);
	log_note("take-over node=%s shards=%u jobs=%u wheel=%s", n->lease.text, n->lease.nr_owned,
		 n->horizon.nr_jobs, adopted ? "adopted" : "new");
	munmap((void *)g, size);
	stand(n);
}

static void hear_predecessor(struct loop_fd *fd, uint32_t events)
{
	struct predecessor *p = TWHEEL_CONTAINER(fd, struct predecessor, fd);
	struct node *n = TWHEEL_CONTAINER(p, struct node, predecessor);
	struct message m;
	int fds[MAX_FDS], ret = hear(fd->fd, &m, fds);

	(void)events;
	if (!ret)
		return;
	if (ret > 0 && m.said == GIVE && p->waits && !n->draining) {
		take(n, fds);
		return;
	}
	close_fds(fds);
	if (ret < 0) {
		forget(n);
		if (p->waits) {
			log_warn("take-over not_taken=\"it has ended\"");
			lease_join_anew(n);
			stand(n);
		}
	}
	/* If it ended before it could say so nobody knows what it had seen. */
	if (ret > 0 ? m.said == LOOK : !p->stands) {
		horizon_look(n);
		successor_look(n);
	}
	if ((ret < 0 || m.said == STANDS) && !p->stands) {
		p->stands = true;
		/* systemd knows by now which process it is. */
		sd_notify(0, "READY=1");
	}
}

void predecessor_close(struct node *n)
{
	struct predecessor *p = &n->predecessor;

	if (p->fd.events)
		forget(n);
	if (p->listen_fd >= 0)
		close(p->listen_fd);
}

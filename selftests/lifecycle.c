// SPDX-License-Identifier: GPL-2.0
/*
 * Who holds the wheel: whoever has the open file, by whatever way it came to them, and
 * whoever sleeps in it. With the last of them it goes, and then the module may go.
 *
 *   TWHEEL_KO=FILE  the module, /twheel.ko by default, to load it anew; tests that need
 *                   that are skipped where it cannot be done
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "module.h"

#define PROBE_ARG	"--read-one-record-of-fd"
#define SOON		(300 * TW_MSEC)	/* mostly after what the test does meanwhile */
#define TIMERS		1000
#define RELOADS		30

/*
 * Files that are open, of all processes; or -1. Each holds the module twice: once for
 * itself and once for the device.
 */
static int open_wheels(void)
{
	FILE *f = fopen("/sys/module/twheel/refcnt", "re");
	int nr = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &nr) != 1)
		nr = -1;
	fclose(f);
	return nr < 0 ? -1 : (nr + 1) / 2;
}

/* Wait until there are so many. */
static bool wheels_become(int nr)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + TW_PATIENCE_MS * TW_MSEC;

	while (open_wheels() != nr) {
		if (tw_clock(CLOCK_MONOTONIC) > end)
			return false;
		tw_sleep_ms(1);
	}
	return true;
}

static bool holds_one_record(int fd)
{
	struct twheel_event ev[2];

	return tw_ready(fd) == 1 && tw_read(fd, ev, 2) == 1;
}

static int exit_status(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

FIXTURE(life)
{
	int before;		/* other files that are open */
	int fd;			/* a manual clock */
	int live;		/* the clock of the kernel; read blocks */
};

FIXTURE_SETUP(life)
{
	self->before = open_wheels();
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	self->live = tw_wheel(CLOCK_MONOTONIC, TW_TICK_DEFAULT, 0);
	ASSERT_LE(0, self->live);
	ASSERT_EQ(0, tw_set_blocking(self->live));
}

FIXTURE_TEARDOWN(life)
{
	close(self->fd);
	close(self->live);
}

TEST_F(life, a_duplicate_is_the_same_wheel)
{
	int fd = dup(self->fd);

	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	EXPECT_TRUE(holds_one_record(fd));
}

TEST_F(life, a_wheel_lives_until_its_last_duplicate_is_closed)
{
	int fd = dup(self->fd);

	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	close(self->fd);
	ASSERT_EQ(0, tw_advance(fd, 2 * TW_HOUR));
	EXPECT_TRUE(holds_one_record(fd));
}

TEST_F(life, a_second_open_is_another_wheel)
{
	int fd = tw_manual(0);

	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	EXPECT_EQ(0, tw_ready(fd));
	close(fd);
}

TEST_F(life, an_open_after_the_last_close_begins_anew)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);
	int fd;

	close(self->fd);
	fd = tw_manual(0);
	EXPECT_EQ(-ENOENT, tw_cancel(fd, id));
	close(fd);
}

/* fork */
TEST_F(life, what_a_child_arms_outlives_it)
{
	pid_t pid = fork();

	if (!pid)
		_exit(!tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_EQ(0, exit_status(pid));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_TRUE(holds_one_record(self->fd));
}

TEST_F(life, a_child_cancels_what_its_parent_armed)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);
	pid_t pid = fork();

	if (!pid)
		_exit(!!tw_cancel(self->fd, id));
	ASSERT_EQ(0, exit_status(pid));
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, id));
}

TEST_F(life, a_child_reads_what_its_parent_armed)
{
	pid_t pid;

	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	pid = fork();
	if (!pid)
		_exit(!holds_one_record(self->fd));
	ASSERT_EQ(0, exit_status(pid));
	EXPECT_EQ(0, tw_ready(self->fd));
}

/* SCM_RIGHTS */
union control {
	char buf[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static bool send_fd(int sock, int fd)
{
	union control control = { { 0 } };
	struct iovec iov = { "x", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1;
}

static int receive_fd(int sock)
{
	union control control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;
	int fd = -1;

	if (recvmsg(sock, &msg, 0) != 1)
		return -1;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg && cmsg->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

TEST_F(life, a_wheel_can_be_sent_through_a_socket)
{
	int sock[2], fd;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sock))
		SKIP(return, "this kernel has no UNIX sockets");
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_TRUE(send_fd(sock[0], self->fd));
	close(self->fd);
	fd = receive_fd(sock[1]);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tw_advance(fd, 2 * TW_HOUR));
	EXPECT_TRUE(holds_one_record(fd));
}

TEST_F(life, a_wheel_that_nobody_receives_goes_with_the_socket)
{
	int sock[2];

	if (self->before < 0)
		SKIP(return, "the module does not count its users");
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sock))
		SKIP(return, "this kernel has no UNIX sockets");
	ASSERT_NE(0, tw_arm_rel(self->live, TW_HOUR, 0));
	ASSERT_TRUE(send_fd(sock[0], self->live));
	close(self->live);
	ASSERT_EQ(self->before + 2, open_wheels());
	close(sock[0]);
	close(sock[1]);
	EXPECT_TRUE(wheels_become(self->before + 1));
}

/* exec */
static void exec_probe(int fd)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", fd);
	execl("/proc/self/exe", "probe", PROBE_ARG, number, NULL);
	_exit(127);
}

/* What the executed copy of this program makes of @fd: its exit status */
static int probe(int fd)
{
	struct twheel_event ev;
	long ret = tw_read(fd, &ev, 1);

	return ret < 0 ? -ret : ret == 1 && ev.user_data == 0 ? 0 : 126;
}

TEST_F(life, a_wheel_survives_exec)
{
	pid_t pid;

	ASSERT_EQ(0, fcntl(self->fd, F_SETFD, 0));
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	pid = fork();
	if (!pid)
		exec_probe(self->fd);
	EXPECT_EQ(0, exit_status(pid));
	EXPECT_EQ(0, tw_ready(self->fd));
}

TEST_F(life, a_wheel_that_is_close_on_exec_is_gone_after_exec)
{
	pid_t pid;

	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	pid = fork();
	if (!pid)
		exec_probe(self->fd);
	EXPECT_EQ(EBADF, exit_status(pid));
	EXPECT_EQ(1, tw_ready(self->fd));
}

/* In a child: timers, one thread asleep in read and one in poll. */
static bool sleepers_wait(int fd)
{
	static struct tw_sleeper r, p;
	int i;

	for (i = 0; i < TIMERS; i++)
		if (!tw_arm_rel(fd, TW_HOUR, i))
			return false;
	return tw_sleeper_start(&r, fd, tw_sleeper_read) &&
	       tw_sleeper_start(&p, fd, tw_sleeper_poll) &&
	       tw_sleeper_asleep(&r) && tw_sleeper_asleep(&p);
}

/* It closes the file of a thread that exec is about to end. */
TEST_F(life, exec_while_others_sleep_lets_go_of_the_wheel)
{
	pid_t pid = fork();

	if (!pid) {
		close(self->live);
		self->live = tw_open(0);
		if (sleepers_wait(self->live))
			exec_probe(self->live);
		_exit(125);
	}
	ASSERT_EQ(EBADF, exit_status(pid));
	EXPECT_TRUE(self->before < 0 || wheels_become(self->before + 2));
}

TEST_F(life, a_killed_process_lets_go_of_the_wheel)
{
	int tell[2], status;
	char byte;
	pid_t pid;

	if (self->before < 0)
		SKIP(return, "the module does not count its users");
	ASSERT_EQ(0, pipe(tell));
	pid = fork();
	if (!pid) {
		if (sleepers_wait(tw_open(0)) && write(tell[1], "!", 1) == 1)
			pause();
		_exit(1);
	}
	close(tell[1]);
	ASSERT_EQ(1, read(tell[0], &byte, 1));
	ASSERT_EQ(self->before + 3, open_wheels());
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(wheels_become(self->before + 2));
}

/* close(2) while others sleep: who sleeps in read has a hold on the file. */
TEST_F(life, a_read_goes_on_after_close_and_gets_its_record)
{
	struct tw_sleeper s;

	ASSERT_TRUE(tw_sleeper_start(&s, self->live, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm_rel(self->live, SOON, 5));
	close(self->live);
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(1, s.ret);
}

TEST_F(life, the_last_read_lets_go_of_a_closed_wheel)
{
	struct tw_sleeper s;

	if (self->before < 0)
		SKIP(return, "the module does not count its users");
	ASSERT_TRUE(tw_sleeper_start(&s, self->live, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm_rel(self->live, SOON, 5));
	close(self->live);
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_TRUE(wheels_become(self->before + 1));
}

/* It looks the descriptor up again, which may not be there any more by then. */
TEST_F(life, a_poll_goes_on_after_close_and_is_woken)
{
	struct tw_sleeper s;

	ASSERT_TRUE(tw_sleeper_start(&s, self->live, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm_rel(self->live, SOON, 5));
	close(self->live);
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_TRUE(s.ret == POLLNVAL || s.ret == (POLLIN | POLLRDNORM));
}

TEST_F(life, epoll_tells_nothing_of_a_closed_wheel)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	ASSERT_EQ(1, epoll_wait(ep, &event, 1, 0));
	close(self->fd);
	EXPECT_EQ(0, epoll_wait(ep, &event, 1, 0));
	close(ep);
}

static void *sleep_in_epoll(void *arg)
{
	struct tw_sleeper *s = arg;
	struct epoll_event event[2];
	int ret;

	tw_sleeper_begin(s);
	ret = epoll_wait(s->fd, event, 2, -1);
	tw_sleeper_end(s, ret == 1 ? (long)event[0].data.u64 : -EPROTO);
	return NULL;
}

TEST_F(life, a_sleeper_in_epoll_does_not_hold_the_wheel)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 };
	int ep = epoll_create1(EPOLL_CLOEXEC), other[2];
	struct tw_sleeper s;

	if (self->before < 0)
		SKIP(return, "the module does not count its users");
	ASSERT_EQ(0, pipe(other));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->live, &event));
	event.data.u64 = 2;
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, other[0], &event));
	ASSERT_NE(0, tw_arm_rel(self->live, TW_HOUR, 0));
	ASSERT_TRUE(tw_sleeper_start(&s, ep, sleep_in_epoll));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	close(self->live);
	EXPECT_TRUE(wheels_become(self->before + 1));
	ASSERT_EQ(1, write(other[1], "!", 1));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(2, s.ret);
	close(ep);
}

/* Signals. That one without SA_RESTART ends a read: read_poll.c. */
static int handled;		/* atomic */

static void handle(int sig)
{
	(void)sig;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

TEST_F(life, a_signal_with_restart_leaves_a_read_asleep)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	struct tw_sleeper s;
	unsigned int i;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, pthread_kill(s.thread, SIGUSR1));
	for (i = 0; i < TW_PATIENCE_MS && !__atomic_load_n(&handled, __ATOMIC_ACQUIRE);
	     i++)
		tw_sleep_ms(1);
	ASSERT_EQ(1, handled);
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm(self->fd, 0, 7));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(1, s.ret);
}

/* The module */
static bool module_removable(long ret)
{
	return !ret || ret == -EWOULDBLOCK;
}

TEST_F(life, the_module_stays_while_a_wheel_is_open)
{
	long ret = module_unload();

	if (!module_removable(ret))
		SKIP(return, "there is no module that could be removed");
	EXPECT_EQ(-EWOULDBLOCK, ret);
	ASSERT_NE(0, tw_arm_rel(self->live, TW_MSEC, 0));
	EXPECT_TRUE(tw_wait_readable(self->live));
}

/* Only the end of the process ends that read. */
TEST_F(life, the_module_stays_while_a_read_of_a_closed_wheel_sleeps)
{
	struct tw_sleeper s;
	long ret;

	ASSERT_TRUE(tw_sleeper_start(&s, self->live, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	close(self->live);
	close(self->fd);
	ret = module_unload();
	if (!module_removable(ret))
		SKIP(return, "there is no module that could be removed");
	EXPECT_EQ(-EWOULDBLOCK, ret);
}

/* Open and use wheels as long as there is somebody to open them. */
struct opener {
	pthread_t thread;
	bool *stop;		/* atomic */
	__u64 opened;
	long error;
};

static void *open_on(void *arg)
{
	struct opener *o = arg;
	int fd;

	while (!__atomic_load_n(o->stop, __ATOMIC_ACQUIRE)) {
		fd = tw_open(O_NONBLOCK);
		if (fd == -ENOENT || fd == -ENODEV || fd == -ENXIO)
			continue;
		if (fd < 0 || !tw_arm_rel(fd, TW_HOUR, 0) || !tw_arm(fd, 0, 0) ||
		    !holds_one_record(fd))
			o->error = fd < 0 ? fd : -EIO;
		o->opened++;
		close(fd);
	}
	return NULL;
}

TEST(the_module_can_be_loaded_and_removed_while_others_open)
{
	struct opener o[2] = { { 0 } };
	int ko = module_open(), i;
	unsigned int reloads = 0;
	bool stop = false;
	long ret;

	if (ko < 0 || module_unload())
		SKIP(return, "the module cannot be loaded anew");
	ASSERT_TRUE(module_load(ko, ""));
	for (i = 0; i < 2; i++) {
		o[i].stop = &stop;
		ASSERT_EQ(0, pthread_create(&o[i].thread, NULL, open_on, &o[i]));
	}
	while (reloads < RELOADS) {
		ret = module_unload();
		if (ret == -EWOULDBLOCK) {
			tw_sleep_ms(1);
			continue;
		}
		ASSERT_EQ(0, ret);
		ASSERT_TRUE(module_load(ko, ""));
		reloads++;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, pthread_join(o[i].thread, NULL));
		EXPECT_EQ(0, o[i].error);
	}
	TH_LOG("%llu opened", o[0].opened + o[1].opened);
	EXPECT_EQ(0, open_wheels());
	close(ko);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], PROBE_ARG))
		return probe(atoi(argv[2]));
	return test_harness_run(argc, argv);
}

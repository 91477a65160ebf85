// SPDX-License-Identifier: GPL-2.0
/*
 * read(2) and poll(2): no record is lost or doubled whatever the reader does, and
 * sleepers are woken.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "twheel_test.h"

#define RECORD		sizeof(struct twheel_event)
#define BURST		500		/* expire in one pass */

#ifndef RWF_NOWAIT
#define RWF_NOWAIT	8
#endif

FIXTURE(rp)
{
	int fd;
	char *cliff;
	struct twheel_event ev[16];
};

FIXTURE_SETUP(rp)
{
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	self->cliff = tw_cliff();
	ASSERT_NE(NULL, self->cliff);
}

FIXTURE_TEARDOWN(rp)
{
	close(self->fd);
}

/* @n records, of user_data 0 to n - 1, wait to be read. */
static bool make_records(int fd, __u64 n)
{
	__u64 i;

	for (i = 0; i < n; i++)
		if (!tw_arm(fd, 0, i))
			return false;
	return tw_ready(fd) == n;
}

/* Are the records of user_data @from to @to - 1 there, in order, and no more? */
static bool records_are(int fd, __u64 from, __u64 to)
{
	struct twheel_event ev;

	for (; from < to; from++)
		if (tw_read(fd, &ev, 1) != 1 || ev.user_data != from)
			return false;
	return tw_read(fd, &ev, 1) == -EAGAIN;
}

/* Short buffers */
TEST_F(rp, a_buffer_below_one_record_is_einval_and_loses_nothing)
{
	char buf[RECORD];
	size_t size;

	ASSERT_TRUE(make_records(self->fd, 1));
	for (size = 0; size < RECORD; size++) {
		ASSERT_EQ(-1, read(self->fd, buf, size)) {
			TH_LOG("size %zu", size);
		}
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_TRUE(records_are(self->fd, 0, 1));
}

TEST_F(rp, only_whole_records_are_read)
{
	unsigned char buf[3 * RECORD];
	size_t i;

	ASSERT_TRUE(make_records(self->fd, 3));
	memset(buf, TW_POISON, sizeof(buf));
	ASSERT_EQ(2 * RECORD, read(self->fd, buf, 3 * RECORD - 1));
	for (i = 2 * RECORD; i < sizeof(buf); i++)
		EXPECT_EQ(TW_POISON, buf[i]);
	EXPECT_TRUE(records_are(self->fd, 2, 3));
}

TEST_F(rp, a_read_takes_no_more_than_there_is)
{
	ASSERT_TRUE(make_records(self->fd, 3));
	EXPECT_EQ(3, tw_read(self->fd, self->ev, 16));
	EXPECT_EQ(TW_POISON64, self->ev[3].id);
}

TEST_F(rp, a_read_of_nothing_is_eagain_without_blocking)
{
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(rp, a_read_with_rwf_nowait_is_eagain)
{
	struct iovec iov = { self->ev, sizeof(self->ev) };

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	EXPECT_EQ(-1, preadv2(self->fd, &iov, 1, -1, RWF_NOWAIT));
	EXPECT_EQ(EAGAIN, errno);
}

TEST_F(rp, a_read_with_rwf_nowait_takes_what_is_there)
{
	struct iovec iov = { self->ev, sizeof(self->ev) };

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(make_records(self->fd, 2));
	EXPECT_EQ(2 * RECORD, preadv2(self->fd, &iov, 1, -1, RWF_NOWAIT));
}

TEST_F(rp, ten_thousand_records_fit_one_read)
{
	static struct twheel_event ev[10001];
	__u64 i;

	ASSERT_TRUE(make_records(self->fd, 10000));
	ASSERT_EQ(10000, tw_read(self->fd, ev, 10001));
	for (i = 0; i < 10000; i++)
		ASSERT_EQ(i, ev[i].user_data);
	EXPECT_EQ(0, tw_ready(self->fd));
}

/* Faults */
TEST_F(rp, a_fault_in_the_first_record_is_efault_and_loses_nothing)
{
	size_t have;

	ASSERT_TRUE(make_records(self->fd, 3));
	for (have = 0; have < RECORD; have++) {
		ASSERT_EQ(-1, read(self->fd, self->cliff - have, 16 * RECORD));
		EXPECT_EQ(EFAULT, errno);
		EXPECT_EQ(3, tw_ready(self->fd));
	}
	EXPECT_TRUE(records_are(self->fd, 0, 3));
}

TEST_F(rp, a_fault_after_whole_records_shortens_the_read)
{
	size_t have;

	for (have = RECORD; have < 4 * RECORD; have++) {
		__u64 whole = have / RECORD;
		struct twheel_event *ev = (void *)(self->cliff - have);
		__u64 i;

		ASSERT_TRUE(make_records(self->fd, 5));
		memset(ev, TW_POISON, have);
		ASSERT_EQ(whole * RECORD, read(self->fd, ev, 16 * RECORD)) {
			TH_LOG("%zu bytes before the fault", have);
		}
		for (i = 0; i < whole; i++)
			EXPECT_EQ(i, ev[i].user_data);
		ASSERT_TRUE(records_are(self->fd, whole, 5));
	}
}

TEST_F(rp, a_null_buffer_is_efault_and_loses_nothing)
{
	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(-1, syscall(SYS_read, self->fd, NULL, RECORD));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_TRUE(records_are(self->fd, 0, 1));
}

TEST_F(rp, a_buffer_that_cannot_be_written_is_efault_and_loses_nothing)
{
	size_t page = sysconf(_SC_PAGESIZE);

	ASSERT_TRUE(make_records(self->fd, 2));
	ASSERT_EQ(0, mprotect(self->cliff - page, page, PROT_READ));
	EXPECT_EQ(-1, read(self->fd, self->cliff - page, page));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_TRUE(records_are(self->fd, 0, 2));
}

TEST_F(rp, a_fault_among_thousands_loses_nothing)
{
	size_t page = sysconf(_SC_PAGESIZE), size = 64 * page, got;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t ret;

	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0, munmap(p + size - 3 * page, 3 * page));
	ASSERT_TRUE(make_records(self->fd, 8000));
	ret = read(self->fd, p + 8, size - 8);
	ASSERT_LT(0, ret);
	ASSERT_EQ(0, ret % RECORD);
	got = ret / RECORD;
	EXPECT_EQ((size - 3 * page - 8) / RECORD, got);
	EXPECT_TRUE(records_are(self->fd, got, 8000));
}

TEST_F(rp, a_fault_keeps_a_periodic_timer_ready_and_its_overrun)
{
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_HOUR + 1));
	EXPECT_EQ(-1, read(self->fd, self->cliff - 8, RECORD));
	EXPECT_EQ(TWHEEL_F_READY, tw_state(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, 4 * TW_HOUR + 1));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(TW_HOUR, self->ev[0].expires_ns);
	EXPECT_EQ(3, self->ev[0].overrun);
}

TEST_F(rp, a_fault_keeps_the_ids_alive)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	EXPECT_EQ(-1, read(self->fd, self->cliff - 8, RECORD));
	EXPECT_EQ(TWHEEL_F_READY, tw_state(self->fd, id));
	EXPECT_EQ(1, tw_cancel(self->fd, id));
}

/* Vectors and positions */
TEST_F(rp, readv_fills_vectors_that_split_a_record)
{
	char a[7], b[RECORD], c[2 * RECORD], whole[3 * RECORD];
	struct iovec iov[] = { { a, sizeof(a) }, { b, sizeof(b) },
			       { c, sizeof(c) } };
	struct twheel_event *ev = (void *)whole;

	ASSERT_TRUE(make_records(self->fd, 3));
	ASSERT_EQ(3 * RECORD, readv(self->fd, iov, 3));
	memcpy(whole, a, 7);
	memcpy(whole + 7, b, RECORD);
	memcpy(whole + 7 + RECORD, c, 2 * RECORD - 7);
	EXPECT_EQ(0, ev[0].user_data);
	EXPECT_EQ(1, ev[1].user_data);
	EXPECT_EQ(2, ev[2].user_data);
}

TEST_F(rp, readv_with_less_than_one_record_in_all_is_einval)
{
	struct iovec iov[] = { { self->ev, 20 }, { self->ev, 19 } };

	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(-1, readv(self->fd, iov, 2));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_TRUE(records_are(self->fd, 0, 1));
}

TEST_F(rp, readv_with_a_fault_in_its_second_vector_loses_nothing)
{
	struct iovec iov[] = { { self->ev, 20 }, { self->cliff, 100 } };

	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(-1, readv(self->fd, iov, 2));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_TRUE(records_are(self->fd, 0, 1));
}

TEST_F(rp, a_stream_has_no_position)
{
	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(-1, lseek(self->fd, 0, SEEK_CUR));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(-1, pread(self->fd, self->ev, RECORD, 0));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_TRUE(records_are(self->fd, 0, 1));
}

TEST_F(rp, it_cannot_be_written)
{
	EXPECT_EQ(-1, write(self->fd, self->ev, RECORD));
	EXPECT_EQ(EINVAL, errno);
}

/* poll */
TEST_F(rp, poll_tells_nothing_of_an_empty_wheel)
{
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(rp, poll_tells_nothing_of_an_armed_timer)
{
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(rp, poll_tells_in_and_rdnorm_of_a_record_and_nothing_else)
{
	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(rp, poll_tells_no_more_than_it_is_asked)
{
	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(POLLIN, tw_poll_for(self->fd, POLLIN, 0));
	EXPECT_EQ(POLLRDNORM, tw_poll_for(self->fd, POLLRDNORM, 0));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLOUT | POLLPRI, 0));
}

TEST_F(rp, poll_is_level_until_the_last_record_is_read)
{
	ASSERT_TRUE(make_records(self->fd, 2));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(POLLIN, tw_poll_for(self->fd, POLLIN, 0));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 0));
}

TEST_F(rp, poll_tells_nothing_of_a_record_withdrawn_by_cancel)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(1, tw_cancel(self->fd, id));
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(rp, poll_tells_nothing_of_a_record_withdrawn_by_modify)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(1, tw_modify(self->fd, id, TW_HOUR));
	EXPECT_EQ(0, tw_poll(self->fd));
}

/* epoll */
static int epoll_of(int fd, __u32 events)
{
	struct epoll_event event = { .events = events };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) ? -errno : ep;
}

/* Events of the one file, 0 for none, or -errno */
static long epoll_once(int ep, int timeout_ms)
{
	struct epoll_event event;
	int ret = epoll_wait(ep, &event, 1, timeout_ms);

	return ret < 0 ? -errno : ret ? (long)event.events : 0;
}

TEST_F(rp, epoll_tells_in_and_rdnorm_and_nothing_else)
{
	int ep = epoll_of(self->fd, 0x3fff);

	ASSERT_LE(0, ep);
	EXPECT_EQ(0, epoll_once(ep, 0));
	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(EPOLLIN | EPOLLRDNORM, epoll_once(ep, 0));
	EXPECT_EQ(EPOLLIN | EPOLLRDNORM, epoll_once(ep, 0));
}

TEST_F(rp, epoll_for_rdnorm_alone_is_woken)
{
	int ep = epoll_of(self->fd, EPOLLRDNORM);

	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	EXPECT_EQ(0, epoll_once(ep, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_EQ(EPOLLRDNORM, epoll_once(ep, TW_PATIENCE_MS));
}

TEST_F(rp, epoll_with_edges_tells_once)
{
	int ep = epoll_of(self->fd, EPOLLIN | EPOLLET);

	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(EPOLLIN, epoll_once(ep, TW_PATIENCE_MS));
	EXPECT_EQ(0, epoll_once(ep, 0));
}

TEST_F(rp, epoll_with_edges_tells_again_after_each_drain)
{
	int ep = epoll_of(self->fd, EPOLLIN | EPOLLET), i;

	for (i = 0; i < 100; i++) {
		ASSERT_NE(0, tw_arm_rel(self->fd, TW_HOUR, 0));
		ASSERT_EQ(0, epoll_once(ep, 0));
		ASSERT_EQ(0, tw_advance(self->fd, (i + 1) * 2 * TW_HOUR));
		ASSERT_EQ(EPOLLIN, epoll_once(ep, TW_PATIENCE_MS));
		ASSERT_EQ(1, tw_discard(self->fd));
	}
}

TEST_F(rp, epoll_with_edges_tells_of_a_period_after_each_drain)
{
	int ep = epoll_of(self->fd, EPOLLIN | EPOLLET), i;

	ASSERT_NE(0, tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0));
	for (i = 1; i < 100; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * TW_HOUR + TW_NSEC));
		ASSERT_EQ(EPOLLIN, epoll_once(ep, TW_PATIENCE_MS));
		ASSERT_EQ(1, tw_discard(self->fd));
	}
}

TEST_F(rp, epoll_with_oneshot_tells_once_until_it_is_renewed)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };
	int ep = epoll_of(self->fd, event.events);

	ASSERT_TRUE(make_records(self->fd, 1));
	EXPECT_EQ(EPOLLIN, epoll_once(ep, TW_PATIENCE_MS));
	EXPECT_EQ(0, epoll_once(ep, 0));
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	EXPECT_EQ(0, epoll_once(ep, 0));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_MOD, self->fd, &event));
	EXPECT_EQ(EPOLLIN, epoll_once(ep, TW_PATIENCE_MS));
}

/* P11: edges that a thread sees, as it never reads, until one more than BURST wait */
static void *count_edges(void *arg)
{
	struct tw_sleeper *s = arg;
	int ep = epoll_of(s->fd, EPOLLIN | EPOLLET);
	long edges = 0;

	tw_sleeper_begin(s);
	while (epoll_once(ep, -1) == EPOLLIN && tw_ready(s->fd) != BURST + 1)
		edges++;
	close(ep);
	tw_sleeper_end(s, edges);
	return NULL;
}

TEST_F(rp, a_burst_wakes_a_sleeper_once)
{
	struct tw_sleeper s;
	__u64 i;

	for (i = 0; i < BURST; i++)
		ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, i));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, count_edges));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm(self->fd, 0, BURST));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(1, s.ret);
}

/* Sleepers */
TEST_F(rp, a_blocked_read_is_woken_by_advance)
{
	struct tw_sleeper s;
	__u64 id = tw_arm(self->fd, TW_HOUR, 5);

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	ASSERT_EQ(1, s.ret);
	EXPECT_EQ(id, s.ev.id);
}

TEST_F(rp, a_blocked_read_is_woken_by_an_arm_in_the_past)
{
	struct tw_sleeper s;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm(self->fd, 0, 5));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(1, s.ret);
}

TEST_F(rp, a_blocked_read_is_woken_by_a_modify_into_the_past)
{
	struct tw_sleeper s;
	__u64 id = tw_arm(self->fd, TW_HOUR, 5);

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, tw_modify(self->fd, id, 0));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(1, s.ret);
}

TEST_F(rp, a_blocked_read_is_woken_by_the_kernel_clock)
{
	struct twheel_event ev;
	int fd = tw_open(0);

	ASSERT_NE(0, tw_arm_rel(fd, 50 * TW_MSEC, 5));
	ASSERT_EQ(1, tw_read(fd, &ev, 1));
	EXPECT_EQ(5, ev.user_data);
	close(fd);
}

TEST_F(rp, a_blocked_read_is_not_woken_for_nothing)
{
	struct tw_sleeper s;
	__u64 id = tw_arm(self->fd, TW_HOUR, 5);

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_NE(0, tw_arm(self->fd, 0, 6));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(6, s.ev.user_data);
}

TEST_F(rp, a_sleeper_in_poll_is_woken)
{
	struct tw_sleeper s;

	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 5));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(POLLIN | POLLRDNORM, s.ret);
}

TEST_F(rp, a_sleeper_in_poll_is_woken_by_the_kernel_clock)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_NE(0, tw_arm_rel(fd, 50 * TW_MSEC, 5));
	EXPECT_TRUE(tw_wait_readable(fd));
	close(fd);
}

TEST_F(rp, sleepers_in_read_and_poll_are_both_woken)
{
	struct tw_sleeper r, p;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 5));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 6));
	ASSERT_TRUE(tw_sleeper_start(&r, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_start(&p, self->fd, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&r));
	ASSERT_TRUE(tw_sleeper_asleep(&p));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_TRUE(tw_sleeper_joined(&r));
	EXPECT_TRUE(tw_sleeper_joined(&p));
}

TEST_F(rp, two_blocked_readers_get_one_record_each)
{
	struct tw_sleeper s[2];
	int i;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 1));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 2));
	for (i = 0; i < 2; i++) {
		ASSERT_TRUE(tw_sleeper_start(&s[i], self->fd, tw_sleeper_read));
		ASSERT_TRUE(tw_sleeper_asleep(&s[i]));
	}
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_TRUE(tw_sleeper_joined(&s[0]));
	ASSERT_TRUE(tw_sleeper_joined(&s[1]));
	EXPECT_EQ(3, s[0].ev.user_data + s[1].ev.user_data);
}

/*
 * A handler that only interrupts. Sent until it arrives in the sleep, since it
 * may come before the sleep too.
 */
static void interrupt(int sig)
{
	(void)sig;
}

static bool interrupted(struct tw_sleeper *s)
{
	struct sigaction action = { .sa_handler = interrupt };
	unsigned int i;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < 1000 && !tw_sleeper_done(s); i++) {
		pthread_kill(s->thread, SIGUSR1);
		tw_sleep_ms(10);
	}
	return tw_sleeper_joined(s);
}

TEST_F(rp, a_signal_ends_a_blocked_read_with_eintr)
{
	struct tw_sleeper s;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_TRUE(interrupted(&s));
	EXPECT_EQ(-EINTR, s.ret);
}

TEST_F(rp, a_signal_ends_a_sleep_in_poll_with_eintr)
{
	struct tw_sleeper s;

	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_TRUE(interrupted(&s));
	EXPECT_EQ(-EINTR, s.ret);
}

/* Two readers, each in blocking reads of a few, until the wheel is empty */
#define SHARED_RECORDS	20000

struct reader {
	pthread_t thread;
	int fd;
	unsigned char *seen;	/* how often each record was read */
	__u64 last;		/* user_data of the one that ends it */
	__u64 records;
	long error;
};

static void *read_until_told(void *arg)
{
	struct reader *r = arg;
	struct twheel_event ev[7];
	long i, n;

	while ((n = tw_read(r->fd, ev, 7)) > 0) {
		for (i = 0; i < n; i++) {
			if (ev[i].user_data == r->last)
				return NULL;
			__atomic_fetch_add(&r->seen[ev[i].user_data], 1,
					   __ATOMIC_RELAXED);
		}
		r->records += n;
	}
	r->error = n;
	return NULL;
}

TEST_F(rp, two_readers_share_the_records_without_loss_or_double)
{
	static unsigned char seen[SHARED_RECORDS];
	__u64 nr = tw_many(SHARED_RECORDS), i;
	struct reader r[2] = { { .fd = self->fd, .seen = seen, .last = nr },
			       { .fd = self->fd, .seen = seen, .last = nr } };

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL,
					    read_until_told, &r[i]));
	for (i = 0; i < nr; i++)
		ASSERT_NE(0, tw_arm(self->fd, i & 3 ? 0 : TW_HOUR, i));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	while (tw_ready(self->fd))
		tw_sleep_ms(1);
	for (i = 0; i < 2; i++) {
		ASSERT_NE(0, tw_arm(self->fd, 0, nr));
		while (tw_ready(self->fd))
			tw_sleep_ms(1);
	}
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_join(r[i].thread, NULL));
	EXPECT_EQ(0, r[0].error | r[1].error);
	EXPECT_EQ(nr, r[0].records + r[1].records);
	for (i = 0; i < nr; i++)
		ASSERT_EQ(1, seen[i]);
}

/*
 * P19: one record at a time for threads of which the kernel wakes but one. The next
 * comes as soon as the last was taken, while they are about to fall asleep. If it
 * wakes nobody, none comes ever again.
 */
#define ROUNDS		5000
#define WAITERS		3

struct waiter {
	pthread_t thread;
	int fd;
	__u32 events;
	__u64 last;		/* user_data of the record that ends it */
	long records;
};

/* Takes a record each time that it is woken, until one says that it is the last. */
static void *wait_and_take(void *arg)
{
	struct waiter *w = arg;
	int ep = epoll_of(w->fd, w->events | EPOLLEXCLUSIVE);
	struct twheel_event ev;
	long ret;

	for (;;) {
		epoll_once(ep, -1);
		ret = tw_read(w->fd, &ev, 1);
		if (ret == 1 && ev.user_data == w->last)
			break;
		w->records += ret == 1;
	}
	close(ep);
	return NULL;
}

/* Arms one that is due, and waits until somebody has taken it. */
static bool taken(int fd, __u64 user_data)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + TW_PATIENCE_MS * TW_MSEC;
	bool armed = tw_arm(fd, 0, user_data);

	while (tw_ready(fd) && tw_clock(CLOCK_MONOTONIC) < end)
		sched_yield();
	return armed && !tw_ready(fd);
}

TEST_F(rp, a_wake_up_for_one_of_many_is_not_lost)
{
	static const __u32 events[] = { EPOLLIN, EPOLLIN | EPOLLET };
	long rounds = tw_many(ROUNDS), records, i, j;
	struct waiter w[WAITERS];

	for (j = 0; j < (long)ARRAY_SIZE(events); j++) {
		memset(w, 0, sizeof(w));
		for (i = 0; i < WAITERS; i++) {
			w[i].fd = self->fd;
			w[i].events = events[j];
			w[i].last = rounds;
			ASSERT_EQ(0, pthread_create(&w[i].thread, NULL, wait_and_take,
						    &w[i]));
		}
		for (i = 0; i < rounds; i++)
			ASSERT_TRUE(taken(self->fd, i));
		for (i = 0; i < WAITERS; i++)
			ASSERT_TRUE(taken(self->fd, rounds));
		for (i = 0, records = 0; i < WAITERS; i++) {
			ASSERT_EQ(0, pthread_join(w[i].thread, NULL));
			records += w[i].records;
		}
		EXPECT_EQ(rounds, records);
	}
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * users.c - the limit of timers over all files of a user
 *
 * It is a parameter of the module, so the module is loaded anew for each test, from
 * TWHEEL_KO or /twheel.ko. Skipped where that cannot be done.
 */
#include "twheel_test.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define LIMIT		1000
#define THREADS		4
#define ROUNDS		2000
#define NOBODY		65534

static bool load_module(const char *params)
{
	const char *path = getenv("TWHEEL_KO");
	int fd = open(path ? path : "/twheel.ko", O_RDONLY | O_CLOEXEC);
	bool loaded;

	if (fd < 0)
		return false;
	if (syscall(SYS_delete_module, "twheel", O_NONBLOCK) && errno != ENOENT) {
		close(fd);
		return false;
	}
	loaded = !syscall(SYS_finit_module, fd, params, 0);
	close(fd);	/* leaves errno alone */
	return loaded;
}

/* How many can be armed before it fails, and with what. */
static unsigned int fill(int fd, unsigned int max, long *err)
{
	unsigned int nr;
	__u64 id;

	for (nr = 0; nr < max; nr++) {
		*err = tw_arm_id(fd, TWHEEL_NEVER, nr, &id);
		if (*err)
			break;
	}
	return nr;
}

FIXTURE(users)
{
	int fd;
	int other;
	long err;
	struct twheel_event ev;
};

FIXTURE_SETUP(users)
{
	self->fd = -1;
	self->other = -1;
	if (!load_module("user_max=1000"))
		SKIP(return, "the module cannot be loaded anew");
	self->fd = tw_manual(TW_TICK_MIN);
	self->other = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
	ASSERT_LE(0, self->other);
	self->err = 0;
}

FIXTURE_TEARDOWN(users)
{
	close(self->fd);
	close(self->other);
	load_module("");
}

TEST_F(users, parameters_that_cannot_be_are_refused)
{
	static const char * const params[] = {
		"capacity=0", "capacity=2 capacity_max=1", "capacity_max=67108865",
		"user_max=4294967295",
	};
	unsigned int i;

	close(self->fd);
	close(self->other);
	for (i = 0; i < sizeof(params) / sizeof(*params); i++) {
		EXPECT_FALSE(load_module(params[i]));
		EXPECT_EQ(EINVAL, errno);
	}
	self->fd = -1;
	self->other = -1;
}

TEST_F(users, exactly_the_limit_can_be_armed)
{
	EXPECT_EQ(LIMIT, fill(self->fd, 2 * LIMIT, &self->err));
}

TEST_F(users, beyond_the_limit_is_eperm)
{
	fill(self->fd, 2 * LIMIT, &self->err);
	EXPECT_EQ(-EPERM, self->err);
}

TEST_F(users, the_limit_is_over_all_files)
{
	ASSERT_EQ(600, fill(self->fd, 600, &self->err));
	EXPECT_EQ(LIMIT - 600, fill(self->other, LIMIT, &self->err));
}

TEST_F(users, a_cancelled_timer_makes_room_in_another_file)
{
	__u64 id = tw_arm(self->fd, TWHEEL_NEVER, 0);

	ASSERT_EQ(LIMIT - 1, fill(self->other, LIMIT, &self->err));
	ASSERT_EQ(0, tw_cancel(self->fd, id));
	EXPECT_EQ(1, fill(self->other, LIMIT, &self->err));
}

TEST_F(users, a_timer_that_waits_to_be_read_counts)
{
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	EXPECT_EQ(LIMIT - 1, fill(self->other, LIMIT, &self->err));
}

TEST_F(users, a_timer_that_was_read_no_longer_counts)
{
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	ASSERT_EQ(1, tw_read(self->fd, &self->ev, 1));
	EXPECT_EQ(LIMIT, fill(self->other, LIMIT, &self->err));
}

TEST_F(users, a_closed_file_gives_everything_back)
{
	ASSERT_EQ(LIMIT, fill(self->other, LIMIT, &self->err));
	ASSERT_EQ(0, close(self->other));
	self->other = -1;
	EXPECT_EQ(LIMIT, fill(self->fd, LIMIT, &self->err));
}

TEST_F(users, a_refused_arm_leaves_no_id_behind)
{
	__u64 id = TW_POISON64;

	fill(self->fd, LIMIT, &self->err);
	ASSERT_EQ(-EPERM, tw_arm_id(self->other, TWHEEL_NEVER, 0, &id));
	EXPECT_EQ(0, id);
}

TEST_F(users, the_capacity_of_a_file_is_still_enospc)
{
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, TW_TICK_MIN, 10);

	EXPECT_EQ(10, fill(fd, LIMIT, &self->err));
	EXPECT_EQ(-ENOSPC, self->err);
	close(fd);
}

/* The status of a child that is nobody: 0 if it could arm the limit. */
static int nobody_fills(void)
{
	long err = 0;
	int fd;

	if (setuid(NOBODY))
		return 2;
	fd = tw_manual(TW_TICK_MIN);
	return fd < 0 || fill(fd, 2 * LIMIT, &err) != LIMIT || err != -EPERM;
}

TEST_F(users, another_user_has_a_limit_of_its_own)
{
	int status = -1;
	pid_t pid;

	ASSERT_EQ(LIMIT, fill(self->fd, LIMIT, &self->err));
	pid = fork();
	if (!pid)
		_exit(nobody_fills());
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* Arms, lets fire or cancels, and reads, so that all ways of being freed race. */
static void *storm(void *arg)
{
	int fd = *(int *)arg;
	struct twheel_event ev[16];
	unsigned int i;
	__u64 id;

	for (i = 0; i < ROUNDS; i++) {
		if (tw_arm_id(fd, i % 3 ? TWHEEL_NEVER : 0, i, &id))
			continue;
		if (i % 3)
			tw_cancel(fd, id);
		else
			tw_read(fd, ev, 16);
	}
	return NULL;
}

TEST_F(users, after_a_storm_on_two_files_the_count_is_exact)
{
	pthread_t threads[THREADS];
	unsigned int i;

	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, storm,
					    i % 2 ? &self->fd : &self->other));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	tw_discard(self->fd);
	tw_discard(self->other);
	EXPECT_EQ(LIMIT, fill(self->fd, 2 * LIMIT, &self->err));
}

/* All opens of misc devices wait for each other, and this one allocates. */
TEST(the_device_is_not_one_of_the_misc_devices)
{
	struct stat st;

	ASSERT_EQ(0, stat(TW_DEVICE, &st));
	EXPECT_NE(10, major(st.st_rdev));
}

TEST_HARNESS_MAIN

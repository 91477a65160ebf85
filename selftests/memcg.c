// SPDX-License-Identifier: GPL-2.0
/*
 * memcg.c - memory is charged to the memory cgroup of who arms, and given back; and
 * what the user is charged for it is the same
 *
 * Needs to be root and cgroup v2 with the memory controller; skipped otherwise.
 */
#include "twheel_test.h"

#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define TIMERS		100000
#define PER_TIMER	64
#define WHEELS_MAX	1000

FIXTURE(memcg)
{
	char root[64];
	char group[96];
};

static bool put(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return tw_put(path, text);
}

/* What the group has of @key in memory.stat, or 0. */
static long long charged(const char *group, const char *key)
{
	char path[PATH_MAX], name[64];
	long long value, found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/memory.stat", group);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fscanf(f, "%63s %lld", name, &value) == 2)
		if (!strcmp(name, key))
			found = value;
	fclose(f);
	return found;
}

FIXTURE_SETUP(memcg)
{
	strcpy(self->root, "/tmp/twheel-cgroup-XXXXXX");
	ASSERT_NE(NULL, mkdtemp(self->root));
	if (mount("none", self->root, "cgroup2", 0, NULL))
		SKIP(return, "no cgroup2");
	snprintf(self->group, sizeof(self->group), "%s/twheel", self->root);
	if (!put(self->root, "cgroup.subtree_control", "+memory"))
		SKIP(return, "no memory controller");
	ASSERT_EQ(0, mkdir(self->group, 0755));
	ASSERT_TRUE(put(self->group, "cgroup.procs", "0"));
}

FIXTURE_TEARDOWN(memcg)
{
	put(self->root, "cgroup.procs", "0");
	rmdir(self->group);
	umount(self->root);
	rmdir(self->root);
}

static bool arm(int fd, unsigned int timers)
{
	unsigned int i;

	for (i = 0; i < timers; i++)
		if (!tw_arm(fd, TW_HOUR + i, i))
			return false;
	return true;
}

static bool arm_all(int fd)
{
	return arm(fd, TIMERS);
}

TEST_F(memcg, timers_are_charged_to_who_arms_them)
{
	long long before = charged(self->group, "slab");
	int fd = tw_manual(TW_TICK_MIN);

	ASSERT_TRUE(arm_all(fd));
	EXPECT_LE((long long)TIMERS * PER_TIMER,
		  charged(self->group, "slab") - before);
	close(fd);
}

TEST_F(memcg, a_timer_takes_less_than_128_bytes_with_all_that_belongs_to_it)
{
	long long before = charged(self->group, "kernel");
	int fd = tw_manual(TW_TICK_MIN);
	long long taken;

	if (tw_guarded())
		SKIP(return, "a kernel that adds to what is allocated");
	ASSERT_TRUE(arm_all(fd));
	taken = charged(self->group, "kernel") - before;
	TH_LOG("%lld bytes for %d timers", taken, TIMERS);
	EXPECT_GT(128LL * TIMERS, taken);
	close(fd);
}

TEST_F(memcg, closing_gives_the_memory_back)
{
	long long before = charged(self->group, "slab"), after = 0;
	int fd = tw_manual(TW_TICK_MIN);
	unsigned int i;

	ASSERT_TRUE(arm_all(fd));
	close(fd);
	/* The counters lag behind a little. */
	for (i = 0; i < TW_PATIENCE_MS / 100; i++) {
		after = charged(self->group, "slab") - before;
		if (after < (long long)TIMERS * PER_TIMER / 10)
			break;
		tw_sleep_ms(100);
	}
	EXPECT_GT((long long)TIMERS * PER_TIMER / 10, after);
}

/* Wheels of one size, so many that what else the group is charged for is little. */
static const struct {
	unsigned int timers;
	unsigned int wheels;
} sizes[] = {
	{ 0, WHEELS_MAX }, { 1, WHEELS_MAX }, { 32, WHEELS_MAX }, { 1024, 100 },
	{ 10 * TIMERS, 1 },
};

/* True if the two counts differ by less than a 20th and 512 bytes a wheel. */
static bool charged_alike(const char *group, unsigned int timers, unsigned int wheels)
{
	static int fds[WHEELS_MAX];
	long long user = 0, cgroup, slack;
	unsigned int i;
	bool armed = true;

	cgroup = -charged(group, "kernel");
	for (i = 0; i < wheels; i++) {
		fds[i] = tw_manual(TW_TICK_MIN);
		armed &= fds[i] >= 0 && arm(fds[i], timers);
		user += tw_counter(fds[i], "memory");
	}
	cgroup += charged(group, "kernel");
	for (i = 0; i < wheels; i++)
		close(fds[i]);
	user /= wheels;
	cgroup /= wheels;
	slack = user / 20 + 512;
	printf("# a wheel of %u timers: user %lld, memory cgroup %lld bytes\n", timers,
	       user, cgroup);
	return armed && cgroup > user - slack && cgroup < user + slack;
}

TEST_F(memcg, a_user_is_charged_for_as_much_as_the_group)
{
	unsigned int i;

	if (tw_guarded())
		SKIP(return, "a kernel that adds to what is allocated");
	/* What a process takes when it first opens so many files stays with it. */
	charged_alike(self->group, 0, WHEELS_MAX);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		EXPECT_TRUE(charged_alike(self->group, sizes[i].timers, sizes[i].wheels));
}

TEST_HARNESS_MAIN

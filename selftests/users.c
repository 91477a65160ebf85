// SPDX-License-Identifier: GPL-2.0
/*
 * users.c - what all files of a user may hold in memory
 *
 * Needs to be root, who is not limited: a test goes on as an ordinary user, but can
 * become root again to change the limit, a parameter of the module. Some load the
 * module anew, from TWHEEL_KO or /twheel.ko. Skipped where that cannot be done.
 *
 * What a file holds is in its fdinfo, and so no test has to know how it comes about.
 */
#include "module.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define PARAMETER	"/sys/module/twheel/parameters/user_memory_max"
#define USER		1000
#define OTHER		1001
#define SUBORDINATE	100000
#define TIMERS		1024		/* they fill all that they make the table grow by */
#define THREADS		4
#define ROUNDS		tw_many(2000)
#define FILES_MAX	20000

static bool reload_module(const char *params)
{
	int ko = module_open();
	long unloaded;
	bool loaded;

	if (ko < 0)
		return false;
	unloaded = module_unload();
	loaded = (!unloaded || unloaded == -ENOENT) && module_load(ko, params);
	close(ko);	/* leaves errno alone */
	return loaded;
}

/*
 * The way back is the saved uid, which has no capabilities in effect. Who changes so
 * may not look at itself in /proc, unless it says that it does not mind.
 */
static bool become(uid_t uid)
{
	return !setresuid(uid, uid, 0) && !prctl(PR_SET_DUMPABLE, 1);
}

static bool set_limit(__u64 bytes)
{
	uid_t uid = getuid();
	char text[24];
	bool set;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	set = become(0) && tw_put(PARAMETER, text);
	return become(uid) && set;
}

static __u64 limit(void)
{
	unsigned long long bytes = TW_POISON64;
	FILE *f = fopen(PARAMETER, "re");

	if (f) {
		if (fscanf(f, "%llu", &bytes) != 1)
			bytes = TW_POISON64;
		fclose(f);
	}
	return bytes;
}

static __u64 memory(int fd)
{
	return tw_counter(fd, "memory");
}

/* How many can be armed before it fails, and with what. */
static unsigned int fill(int fd, unsigned int max, long *err)
{
	unsigned int nr;
	__u64 id;

	*err = 0;
	for (nr = 0; nr < max; nr++) {
		*err = tw_arm_id(fd, TWHEEL_NEVER, nr, &id);
		if (*err)
			break;
	}
	return nr;
}

static bool cancel_all(int fd)
{
	struct twheel_op ops[256];
	long nr;

	while ((nr = tw_drain(fd, ops, 256)) > 0)
		;
	return !nr && !tw_armed(fd);
}

/* What a file of so many timers holds, as root finds out. */
static __u64 memory_of(unsigned int timers)
{
	__u64 bytes = TW_POISON64;
	uid_t uid = getuid();
	long err = 0;
	int fd;

	if (!become(0))
		return bytes;
	fd = tw_manual(TW_TICK_MIN);
	if (fd >= 0 && fill(fd, timers, &err) == timers)
		bytes = memory(fd);
	close(fd);
	return become(uid) ? bytes : TW_POISON64;
}

FIXTURE(users)
{
	__u64 limit;		/* as it was */
	__u64 base;		/* what a file without timers holds */
	__u64 full;		/* and one of TIMERS */
	int fd;
	int other;
	long err;
	struct twheel_event ev;
};

FIXTURE_SETUP(users)
{
	self->fd = -1;
	self->other = -1;
	self->err = 0;
	self->limit = limit();
	if (getuid())
		SKIP(return, "not root");
	ASSERT_NE(TW_POISON64, self->limit);
	self->base = memory_of(0);
	self->full = memory_of(TIMERS);
	ASSERT_LT(self->base, self->full);
	ASSERT_NE(TW_POISON64, self->full);
	ASSERT_TRUE(become(USER));
	ASSERT_TRUE(set_limit(0));
	self->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(users)
{
	close(self->fd);
	close(self->other);
	become(0);
	if (self->limit != TW_POISON64)
		set_limit(self->limit);
}

TEST_F(users, exactly_the_limit_can_be_held)
{
	ASSERT_TRUE(set_limit(self->full));
	EXPECT_EQ(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
	EXPECT_EQ(self->full, memory(self->fd));
}

TEST_F(users, a_limit_of_a_byte_less_is_less)
{
	ASSERT_TRUE(set_limit(self->full - 1));
	EXPECT_GT(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
	EXPECT_GT(self->full, memory(self->fd));
}

TEST_F(users, arming_beyond_the_limit_is_eperm)
{
	ASSERT_TRUE(set_limit(self->full));
	fill(self->fd, 2 * TIMERS, &self->err);
	EXPECT_EQ(-EPERM, self->err);
}

TEST_F(users, a_refused_arm_leaves_no_id_behind)
{
	__u64 id = TW_POISON64;

	ASSERT_TRUE(set_limit(self->base));
	ASSERT_EQ(-EPERM, tw_arm_id(self->fd, TWHEEL_NEVER, 0, &id));
	EXPECT_EQ(0, id);
}

TEST_F(users, a_refused_arm_changes_nothing)
{
	ASSERT_TRUE(set_limit(self->full));
	fill(self->fd, 2 * TIMERS, &self->err);
	EXPECT_EQ(TIMERS, tw_armed(self->fd));
	EXPECT_EQ(self->full, memory(self->fd));
	EXPECT_EQ(-EPERM, tw_arm_id(self->fd, TWHEEL_NEVER, 0, &(__u64){ 0 }));
	EXPECT_EQ(TIMERS, tw_armed(self->fd));
	EXPECT_EQ(self->full, memory(self->fd));
}

TEST_F(users, a_submit_beyond_the_limit_fails_for_those_that_do_not_fit)
{
	struct twheel_op ops[2] = {};

	ASSERT_TRUE(set_limit(self->full));
	ASSERT_EQ(TIMERS - 1, fill(self->fd, TIMERS - 1, &self->err));
	ops[0].opcode = TWHEEL_OP_ARM;
	ops[1].opcode = TWHEEL_OP_ARM;
	ASSERT_EQ(2, tw_submit(self->fd, ops, 2));
	EXPECT_EQ(0, ops[0].res);
	EXPECT_EQ(-EPERM, ops[1].res);
}

/* What has been armed can be worked with all the same. */
TEST_F(users, at_the_limit_a_cancelled_timer_makes_room_in_its_own_file)
{
	__u64 id = tw_arm(self->fd, TWHEEL_NEVER, 0);

	ASSERT_TRUE(set_limit(self->full));
	ASSERT_EQ(TIMERS - 1, fill(self->fd, TIMERS, &self->err));
	ASSERT_EQ(0, tw_modify(self->fd, id, TW_HOUR));
	ASSERT_EQ(0, tw_cancel(self->fd, id));
	EXPECT_EQ(1, fill(self->fd, TIMERS, &self->err));
}

TEST_F(users, the_limit_is_over_all_files)
{
	self->other = tw_manual(TW_TICK_MIN);
	ASSERT_TRUE(set_limit(self->full + self->base));
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(0, fill(self->other, 1, &self->err));
	EXPECT_EQ(-EPERM, self->err);
}

TEST_F(users, two_files_share_all_of_the_limit)
{
	self->other = tw_manual(TW_TICK_MIN);
	ASSERT_TRUE(set_limit(2 * self->full));
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(TIMERS, fill(self->other, 2 * TIMERS, &self->err));
}

/* Arm all, cancel all, next file */
TEST_F(users, what_is_kept_after_all_timers_went_counts_in_the_next_file)
{
	self->other = tw_manual(TW_TICK_MIN);
	ASSERT_TRUE(set_limit(self->full + self->base));
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	ASSERT_TRUE(cancel_all(self->fd));
	ASSERT_TRUE(set_limit(memory(self->fd) + self->base));
	EXPECT_EQ(0, fill(self->other, 1, &self->err));
	EXPECT_EQ(-EPERM, self->err);
	EXPECT_EQ(-EPERM, tw_open(0));
}

static unsigned int open_all(int *fds, long *err)
{
	unsigned int nr;

	*err = 0;
	for (nr = 0; nr < FILES_MAX; nr++) {
		fds[nr] = tw_open(0);
		if (fds[nr] < 0) {
			*err = fds[nr];
			break;
		}
	}
	return nr;
}

static void close_all(const int *fds, unsigned int nr)
{
	while (nr)
		close(fds[--nr]);
}

TEST_F(users, files_without_timers_count)
{
	static int fds[FILES_MAX];
	unsigned int nr;

	ASSERT_TRUE(set_limit(40 * self->base));
	nr = open_all(fds, &self->err);
	close_all(fds, nr);
	EXPECT_EQ(39, nr);
}

TEST_F(users, opening_beyond_the_limit_is_eperm)
{
	ASSERT_TRUE(set_limit(2 * self->base - 1));
	EXPECT_EQ(-EPERM, tw_open(0));
}

TEST_F(users, a_closed_file_gives_everything_back)
{
	self->other = tw_manual(TW_TICK_MIN);
	ASSERT_TRUE(set_limit(self->full + self->base));
	ASSERT_EQ(TIMERS, fill(self->other, TIMERS, &self->err));
	ASSERT_EQ(0, close(self->other));
	self->other = tw_manual(TW_TICK_MIN);
	EXPECT_EQ(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
}

TEST_F(users, the_limit_can_be_raised_while_files_are_open)
{
	ASSERT_TRUE(set_limit(self->base));
	ASSERT_EQ(0, fill(self->fd, 1, &self->err));
	ASSERT_TRUE(set_limit(self->full));
	EXPECT_EQ(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
}

TEST_F(users, a_limit_below_what_is_held_refuses_growth_only)
{
	__u64 id;

	ASSERT_EQ(TIMERS - 1, fill(self->fd, TIMERS - 1, &self->err));
	ASSERT_TRUE(set_limit(1));
	id = tw_arm(self->fd, 0, 7);
	EXPECT_NE(0, id);
	EXPECT_EQ(1, tw_read(self->fd, &self->ev, 1));
	EXPECT_EQ(1, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(-EPERM, self->err);
}

TEST_F(users, a_limit_of_0_is_none)
{
	EXPECT_EQ(0, limit());
	EXPECT_EQ(100 * TIMERS, fill(self->fd, 100 * TIMERS, &self->err));
}

TEST_F(users, only_root_may_change_the_limit)
{
	EXPECT_FALSE(tw_put(PARAMETER, "0"));
}

/* Root's capability, but not root's uid */
TEST_F(users, who_has_the_capability_is_not_limited)
{
	ASSERT_TRUE(set_limit(self->base));
	ASSERT_EQ(0, setresuid(USER, 0, 0));
	EXPECT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	self->other = tw_open(0);
	EXPECT_LE(0, self->other);
}

TEST_F(users, what_the_capability_allowed_counts)
{
	ASSERT_EQ(0, setresuid(USER, 0, 0));
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	ASSERT_TRUE(become(USER));
	ASSERT_TRUE(set_limit(self->full));
	EXPECT_EQ(-EPERM, tw_open(0));
}

/* Whoever arms: the file may have come through a socket. */
TEST_F(users, who_opened_the_file_pays)
{
	ASSERT_TRUE(set_limit(self->full));
	ASSERT_TRUE(become(0) && become(OTHER));
	EXPECT_EQ(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
	EXPECT_EQ(-EPERM, self->err);
	self->other = tw_open(0);
	EXPECT_LE(0, self->other);
	ASSERT_TRUE(become(0) && become(USER));
	EXPECT_EQ(-EPERM, tw_open(0));
}

TEST_F(users, another_user_has_a_limit_of_its_own)
{
	ASSERT_TRUE(set_limit(self->full));
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	ASSERT_TRUE(become(0) && become(OTHER));
	self->other = tw_manual(TW_TICK_MIN);
	EXPECT_EQ(TIMERS, fill(self->other, 2 * TIMERS, &self->err));
	EXPECT_EQ(-EPERM, self->err);
}

/* What a child is to do in a user namespace */
struct in_ns {
	uid_t maker;		/* of the namespace; its uid 0 */
	uid_t inside;		/* its uid 1 */
	bool twice;		/* in another one within */
	int ready[2];		/* the child: there is a namespace */
	int mapped[2];		/* the parent: it has uids */
};

/* How a child ends that tries to open */
enum {
	OPENED,
	REFUSED,		/* by EPERM */
	FAILED,			/* by something else */
	NOT_TRIED,
};

static int opens(void)
{
	int fd = tw_open(0);

	return fd >= 0 ? OPENED : fd == -EPERM ? REFUSED : FAILED;
}

static int opens_in_ns(const struct in_ns *in)
{
	char byte = '!';

	if (setresuid(in->maker, in->maker, in->maker) || unshare(CLONE_NEWUSER))
		return NOT_TRIED;
	if (write(in->ready[1], &byte, 1) != 1 || read(in->mapped[0], &byte, 1) != 1)
		return NOT_TRIED;
	if (setresuid(1, 1, 1) || (in->twice && unshare(CLONE_NEWUSER)))
		return NOT_TRIED;
	return opens();
}

/* As newuidmap does it for who may have subordinate uids. */
static bool put_maps(pid_t pid, const struct in_ns *in)
{
	char path[64], map[64];

	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	if (!tw_put(path, "0 0 1\n"))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	snprintf(map, sizeof(map), "0 %u 1\n1 %u 1\n", in->maker, in->inside);
	return tw_put(path, map);
}

static int run_in_ns(struct in_ns *in)
{
	int status = -1;
	char byte;
	pid_t pid;

	if (!become(0) || pipe(in->ready) || pipe(in->mapped))
		return NOT_TRIED;
	pid = fork();
	if (!pid) {
		close(in->mapped[1]);
		_exit(opens_in_ns(in));
	}
	close(in->ready[1]);
	if (read(in->ready[0], &byte, 1) == 1 && put_maps(pid, in) &&
	    write(in->mapped[1], &byte, 1) != 1)
		return NOT_TRIED;
	close(in->mapped[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return NOT_TRIED;
	return WEXITSTATUS(status);
}

FIXTURE(ns)
{
	__u64 limit;
	int fd;
	__u64 full;
	long err;
	struct in_ns in;
};

FIXTURE_SETUP(ns)
{
	self->fd = -1;
	self->limit = limit();
	if (getuid() || access("/proc/self/ns/user", F_OK))
		SKIP(return, "not root, or no user namespaces");
	ASSERT_NE(TW_POISON64, self->limit);
	self->full = memory_of(TIMERS);
	self->in = (struct in_ns){ .maker = USER, .inside = SUBORDINATE };
	ASSERT_TRUE(become(USER));
	ASSERT_TRUE(set_limit(self->full));
	self->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(ns)
{
	close(self->fd);
	become(0);
	if (self->limit != TW_POISON64)
		set_limit(self->limit);
}

TEST_F(ns, made_by_a_user_lets_its_uids_open_within_the_limit)
{
	EXPECT_EQ(OPENED, run_in_ns(&self->in));
}

TEST_F(ns, made_by_a_user_gives_its_uids_no_limit_of_their_own)
{
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(REFUSED, run_in_ns(&self->in));
}

TEST_F(ns, within_another_gives_no_limit_of_its_own)
{
	self->in.twice = true;
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(REFUSED, run_in_ns(&self->in));
}

TEST_F(ns, that_root_made_gives_each_uid_a_limit_of_its_own)
{
	self->in.maker = 0;
	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	EXPECT_EQ(OPENED, run_in_ns(&self->in));
}

TEST_F(ns, with_the_capability_in_it_is_limited_all_the_same)
{
	int status = -1;
	pid_t pid;

	ASSERT_EQ(TIMERS, fill(self->fd, TIMERS, &self->err));
	pid = fork();
	if (!pid) {
		if (setresuid(USER, USER, USER) || unshare(CLONE_NEWUSER))
			_exit(NOT_TRIED);
		_exit(opens());
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(REFUSED, WEXITSTATUS(status));
}

/* Races */
static void *fill_in_thread(void *arg)
{
	long err = 0;

	fill(*(int *)arg, 100 * TIMERS, &err);
	return (void *)err;
}

/* Arms, lets fire or cancels, and reads, and opens and closes, at the limit. */
static void *storm(void *arg)
{
	int fd = *(int *)arg, more;
	struct twheel_event ev[16];
	unsigned int i;
	long err;
	__u64 id;

	for (i = 0; i < ROUNDS; i++) {
		if (!(i % 16)) {
			more = tw_manual(TW_TICK_MIN);
			fill(more, 100, &err);
			close(more);
		}
		if (tw_arm_id(fd, i % 3 ? TWHEEL_NEVER : 0, i, &id))
			continue;
		if (i % 3)
			tw_cancel(fd, id);
		else
			tw_read(fd, ev, 16);
	}
	return NULL;
}

/* Runs @fn on the two files in turn: false if any thread returned something but @ret. */
static bool race(int fds[2], void *(*fn)(void *), long ret)
{
	pthread_t threads[THREADS];
	bool right = true;
	void *result;
	unsigned int i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fn, &fds[i % 2]))
			return false;
	for (i = 0; i < THREADS; i++)
		right &= !pthread_join(threads[i], &result) && (long)result == ret;
	return right;
}

TEST_F(users, after_a_storm_on_two_files_the_count_is_exact)
{
	int fds[2] = { self->fd, tw_manual(TW_TICK_MIN) };

	self->other = fds[1];
	ASSERT_TRUE(set_limit(5 * self->base));
	ASSERT_TRUE(race(fds, storm, 0));
	close(self->other);
	close(self->fd);
	ASSERT_TRUE(set_limit(self->full));
	self->fd = tw_manual(TW_TICK_MIN);
	self->other = -1;
	EXPECT_EQ(TIMERS, fill(self->fd, 2 * TIMERS, &self->err));
}

TEST_F(users, racing_for_the_limit_two_files_never_hold_more)
{
	int fds[2] = { self->fd, tw_manual(TW_TICK_MIN) };
	__u64 max = 2 * self->full + 100;

	self->other = fds[1];
	ASSERT_TRUE(set_limit(max));
	ASSERT_TRUE(race(fds, fill_in_thread, -EPERM));
	EXPECT_GE(max, memory(self->fd) + memory(self->other));
}

/* A growth is one of at least sixteen. */
TEST_F(users, racing_for_the_limit_nobody_is_refused_what_there_is)
{
	int fds[2] = { self->fd, tw_manual(TW_TICK_MIN) };
	__u64 max = 2 * self->full, left;

	self->other = fds[1];
	ASSERT_TRUE(set_limit(max));
	ASSERT_TRUE(race(fds, fill_in_thread, -EPERM));
	left = max - memory(self->fd) - memory(self->other);
	EXPECT_GT((self->full - self->base) / 4, left);
}

/* The module as it is loaded without any parameters */
FIXTURE(defaults)
{
	__u64 ram;
};

/* A line of /proc/meminfo in bytes, or poison */
static __u64 memory_line(const char *key)
{
	unsigned long long kb;
	__u64 bytes = TW_POISON64;
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128], name[64];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %llu", name, &kb) == 2 && !strcmp(name, key))
			bytes = kb << 10;
	if (f)
		fclose(f);
	return bytes;
}

FIXTURE_SETUP(defaults)
{
	if (!reload_module(""))
		SKIP(return, "the module cannot be loaded anew");
	self->ram = memory_line("MemTotal:");
}

FIXTURE_TEARDOWN(defaults)
{
	become(0);
	reload_module("");
}

TEST_F(defaults, the_limit_is_a_25th_of_the_memory)
{
	EXPECT_GE(self->ram / 25, limit());
	EXPECT_LE(self->ram / 26, limit());
}

TEST_F(defaults, the_limit_is_what_the_module_is_loaded_with)
{
	ASSERT_TRUE(reload_module("user_memory_max=12345678"));
	EXPECT_EQ(12345678, limit());
	ASSERT_TRUE(reload_module("user_memory_max=0"));
	EXPECT_EQ(0, limit());
}

TEST_F(defaults, parameters_that_cannot_be_are_refused)
{
	static const char * const params[] = {
		"capacity=0", "capacity=2 capacity_max=1", "capacity_max=67108865",
		"user_memory_max=-1", "user_memory_max=much",
	};
	unsigned int i;

	for (i = 0; i < sizeof(params) / sizeof(*params); i++) {
		EXPECT_FALSE(reload_module(params[i]));
		EXPECT_EQ(EINVAL, errno);
	}
}

TEST_F(defaults, the_capacity_of_a_file_is_still_enospc)
{
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, TW_TICK_MIN, 10);
	long err = 0;

	EXPECT_EQ(10, fill(fd, TIMERS, &err));
	EXPECT_EQ(-ENOSPC, err);
	close(fd);
}

/* Opens and arms as much as there is: 0 if the limit stopped it, or what went wrong. */
static int takes_all(__u64 enough)
{
	static struct twheel_op ops[1024];
	__u64 before = memory_line("Slab:");
	__u32 i, files;
	long nr;
	int fd;

	for (files = 0; files < 1000; files++) {
		fd = tw_manual(TW_TICK_MIN);
		if (fd < 0)
			return fd == -EPERM ? 0 : 2;
		do {
			memset(ops, 0, sizeof(ops));
			for (i = 0; i < 1024; i++) {
				ops[i].opcode = TWHEEL_OP_ARM;
				ops[i].expires_ns = TWHEEL_NEVER;
			}
			nr = tw_submit(fd, ops, 1024);
			if (nr != 1024)
				return 3;
			if (memory_line("Slab:") > before + enough)
				return 4;
		} while (!ops[1023].res);
		if (ops[1023].res != -EPERM && ops[1023].res != -ENOSPC)
			return 5;
	}
	return 6;
}

/* Who takes more may get processes of others killed, where there are no cgroups. */
TEST_F(defaults, an_ordinary_user_cannot_take_a_20th_of_the_memory)
{
	if (tw_guarded())
		SKIP(return, "a kernel that adds to what is allocated");
	ASSERT_TRUE(become(USER));
	EXPECT_EQ(0, takes_all(self->ram / 20));
}

/* All opens of misc devices wait for each other, and this one allocates. */
TEST(the_device_is_not_one_of_the_misc_devices)
{
	struct stat st;

	ASSERT_EQ(0, stat(TW_DEVICE, &st));
	EXPECT_NE(10, major(st.st_rdev));
}

TEST_HARNESS_MAIN

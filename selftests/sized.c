// SPDX-License-Identifier: GPL-2.0
/*
 * Calls whose struct begins with its size: what the size, the flags and the padding may be,
 * and what memory that is not there comes to. A call that fails changes nothing.
 */
#include "twheel_test.h"

FIXTURE(sized)
{
	int fd;
	__u64 armed_id;
	struct twheel_op op;	/* an array of one */
	struct twheel_info before;
	struct twheel_stats stats;
	unsigned char buf[2 * sizeof(struct twheel_list) + 8];
};

FIXTURE_VARIANT(sized)
{
	unsigned long cmd;
	__u32 size;		/* of the struct */
	long ret;		/* of a call that works */
};

FIXTURE_VARIANT_ADD(sized, next)
{
	.cmd = TWHEEL_IOC_NEXT,
	.size = sizeof(struct twheel_next),
};

FIXTURE_VARIANT_ADD(sized, advance)
{
	.cmd = TWHEEL_IOC_ADVANCE,
	.size = sizeof(struct twheel_advance),
};

FIXTURE_VARIANT_ADD(sized, submit)
{
	.cmd = TWHEEL_IOC_SUBMIT,
	.size = sizeof(struct twheel_submit),
	.ret = 1,
};

FIXTURE_VARIANT_ADD(sized, drain)
{
	.cmd = TWHEEL_IOC_DRAIN,
	.size = sizeof(struct twheel_drain),
	.ret = 1,
};

FIXTURE_VARIANT_ADD(sized, list)
{
	.cmd = TWHEEL_IOC_LIST,
	.size = sizeof(struct twheel_list),
	.ret = 1,
};

FIXTURE_SETUP(sized)
{
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	self->armed_id = tw_arm(self->fd, TW_HOUR, 0);
	ASSERT_NE(0, self->armed_id);
	ASSERT_EQ(0, tw_info(self->fd, &self->before));
	ASSERT_EQ(0, tw_stats(self->fd, &self->stats));
}

FIXTURE_TEARDOWN(sized)
{
	close(self->fd);
}

/* An argument that works, and poison beyond; its array is new each time. */
static void sized_good(FIXTURE_DATA(sized) *self,
		       const FIXTURE_VARIANT(sized) *variant, __u32 size)
{
	struct twheel_advance advance = { size, 0, TW_NSEC };
	struct twheel_list list = {
		.size = size,
		.ops = (uintptr_t)&self->op,
		.nr = 1,
	};
	bool has_array = variant->size > sizeof(advance);

	self->op = tw_entry(TW_HOUR, 1);
	memset(self->buf, TW_POISON, sizeof(self->buf));
	if (size > variant->size)
		memset(self->buf, 0, size);
	memcpy(self->buf, has_array ? (void *)&list : (void *)&advance,
	       variant->size);
}

/* The call fails thus and changes nothing, not in the array either. */
static bool sized_fails(FIXTURE_DATA(sized) *self,
			const FIXTURE_VARIANT(sized) *variant, long error, void *arg)
{
	struct twheel_op was = tw_entry(TW_HOUR, 1);
	struct twheel_stats stats;
	struct twheel_info info;

	return tw_ioctl(self->fd, variant->cmd, arg) == error &&
	       !memcmp(&was, &self->op, sizeof(was)) &&
	       !tw_info(self->fd, &info) &&
	       !memcmp(&info, &self->before, sizeof(info)) &&
	       !tw_stats(self->fd, &stats) &&
	       !memcmp(&stats, &self->stats, sizeof(stats)) &&
	       tw_state(self->fd, self->armed_id) == TWHEEL_F_ARMED;
}

TEST_F(sized, a_size_below_the_first_version_is_einval)
{
	__u32 size;

	for (size = 0; size < variant->size; size++) {
		sized_good(self, variant, size);
		EXPECT_TRUE(sized_fails(self, variant, -EINVAL, self->buf));
	}
}

TEST_F(sized, a_larger_size_with_a_zero_tail_works)
{
	__u32 size;

	for (size = variant->size; size <= 2 * variant->size; size++) {
		sized_good(self, variant, size);
		EXPECT_EQ(variant->ret,
			  tw_ioctl(self->fd, variant->cmd, self->buf));
		EXPECT_TRUE(tw_poisoned(self->buf + size,
					sizeof(self->buf) - size));
		/* For the next to drain */
		ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	}
}

TEST_F(sized, a_larger_size_with_a_nonzero_tail_is_e2big)
{
	__u32 size, at;

	for (size = variant->size + 1; size <= 2 * variant->size; size++) {
		for (at = variant->size; at < size; at++) {
			sized_good(self, variant, size);
			self->buf[at] = 1;
			EXPECT_TRUE(sized_fails(self, variant, -E2BIG, self->buf));
		}
	}
}

TEST_F(sized, a_huge_size_fails_and_does_no_harm)
{
	static const __u32 sizes[] = {
		4097, 65536, 0x7fffffff, 0x80000000, 0xffffffff,
	};
	static unsigned char buf[65536];
	size_t i;

	memset(buf, TW_POISON, sizeof(buf));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		sized_good(self, variant, variant->size);
		memcpy(buf, self->buf, variant->size);
		memcpy(buf, &sizes[i], 4);
		EXPECT_TRUE(sized_fails(self, variant, -E2BIG, buf));
	}
}

TEST_F(sized, every_flag_is_einval)
{
	__u32 bit, flags;

	for (bit = 0; bit < 32; bit++) {
		sized_good(self, variant, variant->size);
		flags = 1U << bit;
		memcpy(self->buf + 4, &flags, sizeof(flags));
		EXPECT_TRUE(sized_fails(self, variant, -EINVAL, self->buf));
	}
}

TEST_F(sized, nonzero_padding_is_einval)
{
	int byte;

	if (variant->size < sizeof(struct twheel_submit))
		return;
	for (byte = offsetof(struct twheel_submit, pad); byte < 24; byte++) {
		sized_good(self, variant, variant->size);
		self->buf[byte] = 0x80;
		EXPECT_TRUE(sized_fails(self, variant, -EINVAL, self->buf));
	}
}

/* The return value could not tell of so many. */
TEST_F(sized, a_number_above_int_max_is_einval)
{
	static const __u32 numbers[] = { 0x80000000, 0x80000001, 0xffffffff };
	size_t i;

	if (variant->size < sizeof(struct twheel_submit))
		return;
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		sized_good(self, variant, variant->size);
		memcpy(self->buf + offsetof(struct twheel_submit, nr), &numbers[i],
		       sizeof(numbers[i]));
		EXPECT_TRUE(sized_fails(self, variant, -EINVAL, self->buf));
	}
}

TEST_F(sized, a_half_mapped_struct_is_efault)
{
	char *cliff = tw_cliff();
	__u32 have;

	ASSERT_NE(NULL, cliff);
	for (have = 1; have < variant->size; have++) {
		sized_good(self, variant, variant->size);
		memcpy(cliff - have, self->buf, have);
		EXPECT_TRUE(sized_fails(self, variant, -EFAULT, cliff - have));
	}
	/* And one whose tail is not there */
	for (have = variant->size; have < 2 * variant->size; have++) {
		sized_good(self, variant, 2 * variant->size);
		memcpy(cliff - have, self->buf, have);
		EXPECT_TRUE(sized_fails(self, variant, -EFAULT, cliff - have));
	}
}

TEST_F(sized, an_array_that_is_not_there_is_efault)
{
	char *cliff = tw_cliff();
	const __u64 bad[] = {
		0, 1, (uintptr_t)cliff, (uintptr_t)cliff - 1,
		(uintptr_t)cliff - 63, (__u64)-4096, TW_S64_MAX, TWHEEL_NEVER,
		0x8000000000000000ULL, 0x800000000000ULL,
	};
	size_t i;

	ASSERT_NE(NULL, cliff);
	if (variant->size < sizeof(struct twheel_submit))
		return;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		sized_good(self, variant, variant->size);
		memcpy(self->buf + offsetof(struct twheel_submit, ops), &bad[i],
		       sizeof(bad[i]));
		EXPECT_TRUE(sized_fails(self, variant, -EFAULT, self->buf)) {
			TH_LOG("address %#llx", (unsigned long long)bad[i]);
		}
	}
}

TEST_HARNESS_MAIN

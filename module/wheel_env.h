/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Everything that wheel.[ch] may see of the world: fixed-width types and a few
 * bit operations. The kernel supplies them inside the kernel; elsewhere the
 * compiler does, so that the very same wheel.c runs under sanitizers, fuzzers
 * and profilers in user space.
 */
#ifndef TWHEEL_WHEEL_ENV_H
#define TWHEEL_WHEEL_ENV_H

#ifdef __KERNEL__

#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/prefetch.h>
#include <linux/types.h>

/* Where there is no instruction for it, gcc makes nothing of a prefetch for writing. */
#ifndef ARCH_HAS_PREFETCHW
#undef prefetchw
#define prefetchw(p)	prefetch(p)
#endif

#else

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/cdefs.h>	/* __always_inline */

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#ifndef U64_MAX
#define U64_MAX		UINT64_MAX
#define U32_MAX		UINT32_MAX
#define U8_MAX		UINT8_MAX
#endif

#undef static_assert
#define static_assert(expr)	_Static_assert(expr, #expr)
#define BIT_ULL(nr)	(1ULL << (nr))
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)
#define min(a, b)	((a) < (b) ? (a) : (b))
#define max(a, b)	((a) > (b) ? (a) : (b))
#define prefetch(p)	__builtin_prefetch(p)
#define prefetchw(p)	__builtin_prefetch(p, 1)

static inline unsigned int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

static inline unsigned int __ffs64(u64 x)
{
	return __builtin_ctzll(x);
}

#endif /* __KERNEL__ */

#endif /* TWHEEL_WHEEL_ENV_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * results.c - the settings of a run, the names of operations, and a line for each figure
 *
 * Measurements call this, and main.c calls measurements: nothing here calls either.
 */
#include "bench.h"

struct config config = {
	.n = { { 1000, 10000, 100000 }, { 1, 32, 1024, 10000, 1000000 } },
	.n_nr = { 3, 5 },
	.rounds = 3,
	.seed = 1,
	.samples = 300,
	.wake_n = 100000,
	.wake_span = 10 * NSEC,
	.spread = 2 * NSEC,
	.idle = 2 * NSEC,
	.pairing = NSEC,
	.cap = 2 * NSEC,
	.connections = 100000,
	.rpcs = 100000,
	.paced = 1000,
	.mix_ns = 5 * NSEC,
};

static const struct {
	const char *name;
	enum op_group group;
} ops[OP_NR] = {
	[OP_CREATE] = { "create", GROUP_OPS },
	[OP_ARM] = { "arm", GROUP_OPS },
	[OP_EXTEND] = { "extend", GROUP_OPS },
	[OP_REARM] = { "rearm", GROUP_OPS },
	[OP_REFRESH] = { "refresh", GROUP_OPS },
	[OP_PAIR] = { "pair", GROUP_OPS },
	[OP_CANCEL] = { "cancel", GROUP_OPS },
	[OP_NOP] = { "nop", GROUP_OPS },
	[OP_DRAIN] = { "drain", GROUP_OPS },
	[OP_FIRE] = { "fire", GROUP_OPS },
	[OP_FIRE_CHURNED] = { "fire-churned", GROUP_OPS },
	[OP_FIRE_SPREAD] = { "fire-spread", GROUP_OPS },
	[OP_LATE_100US] = { "late-100us", GROUP_LATENESS },
	[OP_LATE_1MS] = { "late-1ms", GROUP_LATENESS },
	[OP_LATE_10MS] = { "late-10ms", GROUP_LATENESS },
	[OP_LATE_100MS] = { "late-100ms", GROUP_LATENESS },
	[OP_WAKEUPS] = { "wakeups", GROUP_WAKEUPS },
	[OP_WAKEUPS_IDLE] = { "wakeups-idle", GROUP_WAKEUPS },
	[OP_MEMORY] = { "memory", GROUP_MEMORY },
	[OP_MEMORY_EMPTY] = { "memory-empty", GROUP_MEMORY },
	[OP_THREADS_OWN_1] = { "threads-own-1", GROUP_THREADS },
	[OP_THREADS_OWN_2] = { "threads-own-2", GROUP_THREADS },
	[OP_THREADS_OWN_4] = { "threads-own-4", GROUP_THREADS },
	[OP_THREADS_SHARED_1] = { "threads-shared-1", GROUP_THREADS },
	[OP_THREADS_SHARED_2] = { "threads-shared-2", GROUP_THREADS },
	[OP_THREADS_SHARED_4] = { "threads-shared-4", GROUP_THREADS },
	[OP_MIX_CONNECTIONS] = { "mix-connections", GROUP_MIXES },
	[OP_MIX_RPC] = { "mix-rpc", GROUP_MIXES },
	[OP_MIX_PACING] = { "mix-pacing", GROUP_MIXES },
};

const char *op_name(enum op op)
{
	return ops[op].name;
}

static void result(const struct peer *p, const char *op, __u32 n)
{
	printf("{\"bench\":\"user\",\"peer\":\"%s\",\"op\":\"%s\",\"n\":%u,\"round\":%u,",
	       p->name, op, n, config.round);
}

void figure(const struct peer *p, const char *op, __u32 n, const char *unit, double value)
{
	result(p, op, n);
	printf("\"unit\":\"%s\",\"value\":%.1f}\n", unit, value);
}

/* Of what is far below one. */
void small_figure(const struct peer *p, const char *op, __u32 n, const char *unit,
		  double value)
{
	result(p, op, n);
	printf("\"unit\":\"%s\",\"value\":%.4g}\n", unit, value);
}

void no_figure(const struct peer *p, const char *op, __u32 n, const char *why)
{
	result(p, op, n);
	printf("\"skip\":\"%s\"}\n", why);
}

void skip_ops(const struct peer *p, enum op first, enum op last, __u32 n, const char *why)
{
	enum op op;

	for (op = first; op <= last; op++) {
		if (!wanted(op) || (op == OP_CREATE && p->linear) ||
		    (op == OP_NOP && !p->nop) || (op == OP_DRAIN && !p->drain))
			continue;
		no_figure(p, ops[op].name, n, why);
	}
}

__u64 ops_of(enum op_group group)
{
	__u64 bits = 0;
	enum op op;

	for (op = 0; op < OP_NR; op++) {
		if (ops[op].group & group)
			bits |= 1ULL << op;
	}
	return bits;
}

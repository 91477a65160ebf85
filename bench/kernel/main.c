// SPDX-License-Identifier: GPL-2.0
/*
 * Compares the wheel of twheel with other timers, while the module is being loaded.
 *
 *   insmod twheel_bench.ko n=1000,1000000 rounds=3
 *   cat /sys/kernel/debug/twheel_bench
 *
 * That is JSON, one figure a line. In each round every peer takes its turn, so that a busy
 * machine does to all the same; what reads this takes medians.
 *
 * Operations go through the timers in random order, unless their name ends in ".seq",
 * which is in the order of their memory. A timer is a cache line with all of them.
 */
#include <linux/debugfs.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/prandom.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/utsname.h>

#include "bench.h"

#define MAX_N		16
#define MAX_NAMES	16
#define PAIRS		100000
#define CHURNS		4
#define IDLE_STEPS	1000
#define MIX_STEPS	30U
#define MIX_STEP_MS	10

static unsigned int n[MAX_N] = { 1000, 100000, 1000000 };
static int nr_n = 3;
module_param_array(n, uint, &nr_n, 0444);
MODULE_PARM_DESC(n, "numbers of timers (1000,100000,1000000)");

static unsigned int rounds = 3;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "how often all is measured (3)");

static char *peers[MAX_NAMES];
static int nr_peers;
module_param_array(peers, charp, &nr_peers, 0444);
MODULE_PARM_DESC(peers, "their names, with commas between (all)");

static char *phases[MAX_NAMES];
static int nr_phases;
module_param_array(phases, charp, &nr_phases, 0444);
MODULE_PARM_DESC(phases, "of arm, pair, next, idle, burst, churn, spread, mix, seq (all)");

static unsigned int seed = 1;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "of orders and deadlines (1)");

static unsigned int spread_s = 3600;
module_param(spread_s, uint, 0444);
MODULE_PARM_DESC(spread_s, "time over which deadlines that are waited for are spread (3600)");

static unsigned int after_s = 30;
module_param(after_s, uint, 0444);
MODULE_PARM_DESC(after_s, "the first of them, by when all have to be armed (30)");

unsigned int tsc_khz;
module_param(tsc_khz, uint, 0444);
MODULE_PARM_DESC(tsc_khz, "measure with the processor's counter, of this frequency (0: do not)");

unsigned int patience_ms = 2000;
module_param(patience_ms, uint, 0444);
MODULE_PARM_DESC(patience_ms, "a loop that takes longer is cut short (2000)");

struct bench bench;

static const struct peer * const all_peers[] = {
	&peer_wheel, &peer_engine, &peer_engine_32, &peer_timer_list, &peer_hrtimer,
	&peer_timerqueue, &peer_min_heap, &peer_sorted_list, &peer_list, &peer_rounds,
	&peer_kafka,
};

struct result {
	struct list_head link;
	const char *peer;
	const char *op;
	u64 n;
	u32 round;
	s64 ns_100;
};

static LIST_HEAD(results);
static bool results_lost;	/* for want of memory */
static u32 round_nr;	/* 0 before the first */
static struct rnd_state random_state;
static struct dentry *debugfs_file;

static u32 rnd_below(u32 limit)
{
	return reciprocal_scale(prandom_u32_state(&random_state), limit);
}

/* In hundredths of a nanosecond. */
static void report(const char *peer, const char *op, u64 nr, s64 ns_100)
{
	struct result *result = kmalloc(sizeof(*result), GFP_KERNEL);

	if (!result) {
		results_lost = true;
		return;
	}
	*result = (struct result){
		.peer = peer,
		.op = op,
		.n = nr,
		.round = round_nr,
		.ns_100 = ns_100,
	};
	list_add_tail(&result->link, &results);
}

static void report_cost(const char *peer, const char *op, struct cost cost)
{
	u64 ns = tsc_khz ? div_u64(cost.time * USEC_PER_SEC, tsc_khz) : cost.time;

	report(peer, op, bench.n, div_u64(ns * 100, cost.nr ?: 1));
}

static void shuffle(void)
{
	u32 i, j;

	for (i = bench.n - 1; i; i--) {
		j = rnd_below(i + 1);
		swap(bench.order[i], bench.order[j]);
		swap(bench.handle[i], bench.handle[j]);
	}
	cond_resched();
}

/* Deadlines for all places of the order, @from to @from + @range away. */
static void choose(const struct peer *peer, u64 from_ms, u32 range_ms)
{
	u64 base = peer->when(from_ms), unit = peer->when(from_ms + BENCH_HOUR) - base;
	u32 i;

	for (i = 0; i < bench.n; i++)
		bench.when[i] = base + div_u64(unit * rnd_below(range_ms + 1), BENCH_HOUR);
	cond_resched();
}

/* Without a list all are. */
static bool is_wanted(char * const *list, int nr, const char *name)
{
	return !nr || match_string((const char * const *)list, nr, name) >= 0;
}

/* All timers anew, none armed. */
static int reopen(const struct peer *peer)
{
	peer->close();
	bench.fired = 0;
	return peer->open();
}

static int arm_all(const struct peer *peer, const char *op)
{
	struct cost cost;

	bench.nr = bench.n;
	cost = peer->arm();
	if (op)
		report_cost(peer->name, op, cost);
	cond_resched();
	return cost.nr == bench.n ? 0 : -ETIME;
}

/* Deadlines of a minute to an hour more: nothing expires meanwhile. */
static int measure_arm(const struct peer *peer, bool mix, const char * const *ops)
{
	int ret;

	if (mix)
		shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	ret = arm_all(peer, ops[0]);
	if (ret)
		return ret;
	if (mix)
		shuffle();
	choose(peer, 60 * BENCH_SECOND + BENCH_HOUR, BENCH_HOUR);
	report_cost(peer->name, ops[1], peer->set());

	ret = reopen(peer);
	if (ret)
		return ret;
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	arm_all(peer, NULL);
	if (mix)
		shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	report_cost(peer->name, ops[2], peer->set());
	if (mix)
		shuffle();
	report_cost(peer->name, ops[3], peer->cancel());
	if (mix)
		shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	report_cost(peer->name, ops[4], peer->arm());
	return 0;
}

static int phase_arm(const struct peer *peer)
{
	static const char * const ops[] = { "arm", "later", "anywhere", "cancel", "again" };

	return measure_arm(peer, true, ops);
}

static int phase_seq(const struct peer *peer)
{
	static const char * const ops[] = {
		"arm.seq", "later.seq", "anywhere.seq", "cancel.seq", "again.seq",
	};

	return measure_arm(peer, false, ops);
}

static int phase_pair(const struct peer *peer)
{
	shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	if (arm_all(peer, NULL))
		return -ETIME;
	shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	bench.nr = min(bench.n, PAIRS);
	report_cost(peer->name, "pair", peer->pair());
	return 0;
}

/* To arm when all before is over, as when a program does so now and then. */
static int measure_alone(const struct peer *peer)
{
	shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	if (arm_all(peer, NULL))
		return -ETIME;
	shuffle();
	bench.nr = min(bench.n, PAIRS);
	peer->cancel();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	report_cost(peer->name, "alone", peer->alone());
	return 0;
}

/* The earliest deadline after each of many changes: what it adds to their cost. */
static int measure_next(const struct peer *peer)
{
	struct cost with, without;

	peer->earliest();
	shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	without = peer->next(false);
	shuffle();
	choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
	with = peer->next(true);
	with.time -= min(with.time, div_u64(without.time * with.nr, without.nr ?: 1));
	report_cost(peer->name, "next", with);
	return 0;
}

/* And when half of the timers have been cancelled since: by their number. */
static int measure_next_stale(const struct peer *peer)
{
	struct cost cost;

	choose(peer, 5 * BENCH_SECOND, BENCH_SECOND / 5);
	if (arm_all(peer, NULL))
		return -ETIME;
	shuffle();
	bench.nr = bench.n / 2;
	peer->cancel();
	cost = peer->earliest();
	cost.nr = bench.nr;
	report_cost(peer->name, "next.stale", cost);
	return 0;
}

static int phase_next(const struct peer *peer)
{
	int ret;

	if (!peer->alone)
		return 0;
	ret = measure_alone(peer);
	if (ret || !peer->next)
		return ret;
	ret = measure_next(peer);
	if (!ret)
		ret = reopen(peer);
	return ret ?: measure_next_stale(peer);
}

/* Time goes by, and no timer is due. */
static int measure_idle(const struct peer *peer, const char *op, u64 step_ms)
{
	struct cost cost = { .nr = peer->real ? 1 : IDLE_STEPS };
	u32 i;
	int ret;

	if (peer->max_idle < step_ms)
		return 0;
	/* Nobody waits an hour unless the clock jumps there. */
	if (peer->real && !tsc_khz && step_ms > BENCH_SECOND)
		return 0;
	ret = reopen(peer);
	if (ret)
		return ret;
	choose(peer, peer->max_idle > BENCH_YEAR ? 20000 * BENCH_YEAR : 10000 * BENCH_HOUR,
	       BENCH_HOUR);
	if (arm_all(peer, NULL))
		return -ETIME;
	for (i = 0; i < cost.nr && cost.time < bench_patience(); i++)
		cost.time += peer->run(peer->when(step_ms));
	cost.nr = i;
	report_cost(peer->name, op, cost);
	return bench.fired ? -EBADMSG : 0;
}

static int phase_idle(const struct peer *peer)
{
	int ret = measure_idle(peer, "idle.ms", 1);

	if (!ret)
		ret = measure_idle(peer, "idle.hour", BENCH_HOUR);
	return ret ?: measure_idle(peer, "idle.year", BENCH_YEAR);
}

/* All expire, within a time. None is believed to have before it has been waited for. */
static int measure_expiry(const struct peer *peer, const char *op, u32 range_ms)
{
	struct cost cost = { .nr = bench.n };
	u64 end;
	u32 i;

	shuffle();
	choose(peer, after_s * BENCH_SECOND, range_ms);
	end = peer->when(after_s * BENCH_SECOND + range_ms + 2); /* a tick of any peer */
	if (arm_all(peer, NULL))
		return -ETIME;
	if (bench.fired)
		return -EBADMSG;
	for (i = 0; bench.fired < bench.n && i < 10; i++)
		cost.time += peer->run(max(end, peer->when(0)));
	if (bench.fired != bench.n) {
		pr_err("twheel_bench: %llu of %u have expired\n", bench.fired, bench.n);
		return -EBADMSG;
	}
	report_cost(peer->name, op, cost);
	return 0;
}

static int phase_burst(const struct peer *peer)
{
	return measure_expiry(peer, "burst", 0);
}

/*
 * The same when neighbours in the order of expiry are anywhere in memory, as they come to be
 * while a program runs: all were armed and cancelled a few times, in random orders. Peers
 * whose timers stay where they are have that in any case.
 */
static int phase_churn(const struct peer *peer)
{
	u32 i;

	if (!peer->places)
		return 0;
	for (i = 0; i < CHURNS; i++) {
		shuffle();
		choose(peer, 60 * BENCH_SECOND, BENCH_HOUR);
		if (arm_all(peer, NULL))
			return -ETIME;
		shuffle();
		if (peer->cancel().nr != bench.n)
			return -ETIME;
	}
	return measure_expiry(peer, "burst.churned", 0);
}

static int phase_spread(const struct peer *peer)
{
	return measure_expiry(peer, "spread", spread_s * BENCH_SECOND);
}

/* All are pushed to 30 s from now, again and again: nearly none ever expires. */
static void deadlines_fixed(const struct peer *peer)
{
	choose(peer, 30 * BENCH_SECOND, 0);
}

static void deadlines_uniform(const struct peer *peer)
{
	choose(peer, MIX_STEP_MS, 60 * BENCH_SECOND);
}

/* Each length from 1 ms to half an hour is as likely as its double. */
static void deadlines_heavy(const struct peer *peer)
{
	u64 base = peer->when(0), hour = peer->when(BENCH_HOUR) - base;
	u32 i;

	for (i = 0; i < bench.nr; i++)
		bench.when[i] = base + div_u64(hour * (1 + rnd_below(2U << rnd_below(21))),
					       BENCH_HOUR);
}

/* Work among many timers while time goes by, with all expiries that come of it. */
static int measure_mix(const struct peer *peer, const char *op,
		       void (*deadlines)(const struct peer *peer), bool cancel)
{
	u32 i, steps = min(bench.n, MIX_STEPS);
	struct cost cost = {}, part;
	int ret;

	ret = reopen(peer);
	if (ret)
		return ret;
	shuffle();
	choose(peer, MIX_STEP_MS, 30 * BENCH_SECOND);
	if (arm_all(peer, NULL))
		return -ETIME;
	shuffle();
	bench.nr = bench.n / steps;
	for (i = 0; i < steps; i++) {
		deadlines(peer);
		if (cancel)
			cost.time += peer->cancel().time;
		part = peer->set();
		cost.time += part.time + peer->run(peer->when(MIX_STEP_MS));
		cost.nr += part.nr;
		bench.order += bench.nr;
		bench.handle += bench.nr;
	}
	bench.order -= steps * bench.nr;
	bench.handle -= steps * bench.nr;
	report_cost(peer->name, op, cost);
	return 0;
}

static int phase_mix(const struct peer *peer)
{
	int ret = measure_mix(peer, "mix.fixed", deadlines_fixed, false);

	if (!ret)
		ret = measure_mix(peer, "mix.uniform", deadlines_uniform, true);
	return ret ?: measure_mix(peer, "mix.heavy", deadlines_heavy, true);
}

static const struct phase {
	const char *name;
	int (*measure)(const struct peer *peer);
} all_phases[] = {
	{ "arm", phase_arm },
	{ "seq", phase_seq },
	{ "pair", phase_pair },
	{ "next", phase_next },
	{ "idle", phase_idle },
	{ "burst", phase_burst },
	{ "churn", phase_churn },
	{ "spread", phase_spread },
	{ "mix", phase_mix },
};

static int measure_phase(const struct peer *peer, const struct phase *phase)
{
	u32 i;
	int ret;

	for (i = 0; i < bench.n; i++)
		bench.order[i] = i;
	ret = reopen(peer);
	if (!ret)
		ret = phase->measure(peer);
	peer->close();
	if (ret && ret != -ETIME)
		pr_err("twheel_bench: %s, %s, %u timers: error %d\n", peer->name, phase->name,
		       bench.n, ret);
	return ret == -ETIME ? 0 : ret;
}

static int measure_peer(const struct peer *peer)
{
	u32 i;
	int ret = 0;

	for (i = 0; !ret && i < ARRAY_SIZE(all_phases); i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (is_wanted(phases, nr_phases, all_phases[i].name))
			ret = measure_phase(peer, &all_phases[i]);
	}
	return ret;
}

/*
 * What the memory costs: one word in the cache line of each timer, in random order. The
 * processor has many of them on their way at a time; fewer if there is more to do for
 * each, be it to take and release a lock, as its window holds only so many instructions;
 * and one if each tells where the next is.
 */
static int measure_memory(void)
{
	static DEFINE_SPINLOCK(lock);
	struct line {
		u64 word;
		u64 next;
	} ____cacheline_aligned *lines = kvcalloc(bench.n, sizeof(*lines), GFP_KERNEL);
	struct cost cost = { .nr = bench.n };
	u64 since, at = 0;
	u32 i;

	if (!lines)
		return -ENOMEM;
	shuffle();
	for (i = 0; i < bench.n; i++)
		lines[bench.order[i]].next = bench.order[(i + 1) % bench.n];
	since = bench_time();
	for (i = 0; i < bench.n; i++)
		lines[bench.order[i]].word++;
	cost.time = bench_time() - since;
	report_cost("memory", "touch", cost);
	shuffle();	/* chase has its own order, and touch must have left nothing */
	since = bench_time();
	for (i = 0; i < bench.n; i++) {
		spin_lock_bh(&lock);
		lines[bench.order[i]].word++;
		spin_unlock_bh(&lock);
	}
	cost.time = bench_time() - since;
	report_cost("memory", "locked", cost);
	since = bench_time();
	for (i = 0; i < bench.n; i++)
		at = lines[at].next;
	cost.time = bench_time() - since;
	bench.sum += at;
	report_cost("memory", "chase", cost);
	kvfree(lines);
	return 0;
}

/* One number of timers: every peer, one after the other. */
static int measure_n(u32 nr)
{
	u32 i;
	int ret;

	bench.n = nr;
	bench.order = kvcalloc(nr, sizeof(*bench.order), GFP_KERNEL);
	bench.when = kvcalloc(nr, sizeof(*bench.when), GFP_KERNEL);
	bench.handle = kvcalloc(nr, sizeof(*bench.handle), GFP_KERNEL);
	ret = bench.order && bench.when && bench.handle ? 0 : -ENOMEM;
	for (i = 0; !ret && i < nr; i++)
		bench.order[i] = i;
	if (!ret)
		ret = measure_memory();
	for (i = 0; !ret && i < ARRAY_SIZE(all_peers); i++)
		if (nr <= all_peers[i]->max_n && is_wanted(peers, nr_peers, all_peers[i]->name))
			ret = measure_peer(all_peers[i]);
	kvfree(bench.order);
	kvfree(bench.when);
	kvfree(bench.handle);
	return ret;
}

static int measure_all(void)
{
	u32 i;
	int ret;

	prandom_seed_state(&random_state, seed);
	ret = late_measure(report);
	for (round_nr = 1; !ret && round_nr <= rounds; round_nr++)
		for (i = 0; !ret && i < nr_n; i++) {
			pr_info("twheel_bench: round %u, %u timers\n", round_nr, n[i]);
			ret = measure_n(n[i]);
		}
	return ret ?: results_lost ? -ENOMEM : 0;
}

static void show(struct seq_file *m, const struct result *r)
{
	u64 abs = r->ns_100 < 0 ? -r->ns_100 : r->ns_100;

	seq_printf(m, "{\"bench\":\"kernel\",\"peer\":\"%s\",\"op\":\"%s\",\"n\":%llu,",
		   r->peer, r->op, r->n);
	seq_printf(m, "\"round\":%u,\"unit\":\"ns\",\"value\":%s%llu.%02llu}\n", r->round,
		   r->ns_100 < 0 ? "-" : "", abs / 100, abs % 100);
}

static int results_show(struct seq_file *m, void *v)
{
	const struct result *r;

	seq_printf(m, "{\"bench\":\"kernel\",\"kernel\":\"%s\",", init_utsname()->release);
	seq_printf(m, "\"clock\":\"%s\",\"seed\":%u}\n", tsc_khz ? "tsc" : "monotonic", seed);
	list_for_each_entry(r, &results, link)
		show(m, r);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(results);

static void free_results(void)
{
	struct result *result, *next;

	list_for_each_entry_safe(result, next, &results, link)
		kfree(result);
}

static bool is_peer(const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(all_peers); i++)
		if (!strcmp(all_peers[i]->name, name))
			return true;
	return false;
}

static bool is_phase(const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(all_phases); i++)
		if (!strcmp(all_phases[i].name, name))
			return true;
	return false;
}

static bool are_known(char * const *list, int nr, bool (*is_known)(const char *name))
{
	while (nr--)
		if (!is_known(list[nr])) {
			pr_err("twheel_bench: what is \"%s\"?\n", list[nr]);
			return false;
		}
	return true;
}

static bool are_sane(void)
{
	u32 i;

	for (i = 0; i < nr_n; i++)
		if (n[i] < 2 || n[i] > 1 << 25)
			break;
	if (i == nr_n && patience_ms && spread_s && spread_s < 1000000 && after_s < 1000000)
		return true;
	pr_err("twheel_bench: n is 2 to 2^25, times are more than 0 and less than 10^6 s\n");
	return false;
}

static int __init bench_init(void)
{
	int ret;

	if (!are_sane() || !are_known(peers, nr_peers, is_peer) ||
	    !are_known(phases, nr_phases, is_phase))
		return -EINVAL;
	ret = softirq_begin();
	if (ret)
		return ret;
	ret = measure_all();
	softirq_end();
	if (ret) {
		free_results();
		return ret;
	}
	debugfs_file = debugfs_create_file("twheel_bench", 0444, NULL, NULL, &results_fops);
	return 0;
}

static void __exit bench_exit(void)
{
	debugfs_remove(debugfs_file);
	free_results();
}

module_init(bench_init);
module_exit(bench_exit);

MODULE_DESCRIPTION("Benchmark of twheel and other timers");
MODULE_AUTHOR("The twheel authors");
MODULE_LICENSE("GPL");

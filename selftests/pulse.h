/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pulse.h - a heartbeat on each CPU, to see that nothing holds one
 *
 * A thread on each CPU, of the lowest real-time priority where that is allowed: all
 * that can stop it are interrupts, softirqs and tasks that are not preempted. On an
 * emulated machine the whole CPU may stop too, which is not the kernel's fault. So a
 * pause counts as far as the kernel was busy on that CPU meanwhile, by its own count of
 * ticks; beyond LIMIT_TIMES the limit it counts whatever the kernel says, as ticks may
 * be off as well.
 *
 *   TWHEEL_HEARTBEAT_MS=N  the longest pause, 2000 by default
 */
#ifndef PULSE_H
#define PULSE_H

#include <sched.h>

#include "twheel_test.h"

#define PULSE_CPUS	8
#define PULSE_MS	50
#define LIMIT_TIMES	5

struct tw_pulse {
	pthread_t thread;
	int cpu;
	bool started;
	bool stop;		/* atomic */
	__u64 beat_ns;		/* atomic: when it beat last, on CLOCK_MONOTONIC */
	__u64 busy_ns;		/* atomic: what the kernel had taken of the CPU by then */
	__u64 held_ns;		/* atomic: the worst pause that counts */
};

struct tw_pulses {
	struct tw_pulse cpu[PULSE_CPUS];
	unsigned int nr;
};

static inline bool tw_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set);
}

/* What system calls, interrupts and softirqs took of a CPU since boot; 0 if unknown. */
static inline __u64 tw_kernel_ns(int cpu)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	char line[256], name[16];
	__u64 ticks = 0;
	FILE *f = fopen("/proc/stat", "re");

	if (!f)
		return 0;
	snprintf(name, sizeof(name), "cpu%d ", cpu);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, strlen(name)))
			continue;
		if (sscanf(line + strlen(name), "%llu %llu %llu %llu %llu %llu %llu", &user,
			   &nice, &system, &idle, &iowait, &irq, &softirq) == 7)
			ticks = system + irq + softirq;
		break;
	}
	fclose(f);
	return ticks * (TW_NSEC / sysconf(_SC_CLK_TCK));
}

static inline __u64 tw_pulse_limit_ns(void)
{
	return tw_env("TWHEEL_HEARTBEAT_MS", 2000) * TW_MSEC;
}

/* How much of the pause that lasts since the last beat was the kernel's doing. */
static inline __u64 tw_pulse_pause_ns(struct tw_pulse *p, __u64 *now, __u64 *busy)
{
	__u64 beat = __atomic_load_n(&p->beat_ns, __ATOMIC_ACQUIRE);
	__u64 was = __atomic_load_n(&p->busy_ns, __ATOMIC_ACQUIRE);
	__u64 pause;

	*busy = tw_kernel_ns(p->cpu);
	*now = tw_clock(CLOCK_MONOTONIC);
	pause = *now > beat ? *now - beat : 0;
	if (pause > LIMIT_TIMES * tw_pulse_limit_ns())
		return pause;
	if (*busy < was)
		return 0;	/* the CPU is or was away */
	return pause < *busy - was ? pause : *busy - was;
}

static inline void *tw_pulse_thread(void *arg)
{
	struct sched_param param = { .sched_priority = 1 };
	struct tw_pulse *p = arg;
	__u64 now, busy, held;

	sched_setscheduler(0, SCHED_FIFO, &param);
	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		/* Again and again, as the CPU may have been away. */
		tw_pin(p->cpu);
		usleep(PULSE_MS * 1000);
		held = tw_pulse_pause_ns(p, &now, &busy);
		if (held > __atomic_load_n(&p->held_ns, __ATOMIC_RELAXED))
			__atomic_store_n(&p->held_ns, held, __ATOMIC_RELAXED);
		__atomic_store_n(&p->busy_ns, busy, __ATOMIC_RELEASE);
		__atomic_store_n(&p->beat_ns, now, __ATOMIC_RELEASE);
	}
	return NULL;
}

static inline bool tw_pulses_start(struct tw_pulses *pulses)
{
	long nr = sysconf(_SC_NPROCESSORS_CONF);
	struct tw_pulse *p;

	memset(pulses, 0, sizeof(*pulses));
	while (pulses->nr < PULSE_CPUS && pulses->nr < nr) {
		p = &pulses->cpu[pulses->nr];
		p->cpu = pulses->nr;
		p->beat_ns = tw_clock(CLOCK_MONOTONIC);
		p->busy_ns = tw_kernel_ns(p->cpu);
		if (pthread_create(&p->thread, NULL, tw_pulse_thread, p))
			return false;
		p->started = true;
		pulses->nr++;
	}
	return true;
}

/* The longest that a CPU was held, up to this moment. May be called amid it. */
static inline __u64 tw_pulses_held_ns(struct tw_pulses *pulses)
{
	__u64 worst = 0, held, now, busy;
	unsigned int i;

	for (i = 0; i < pulses->nr; i++) {
		held = __atomic_load_n(&pulses->cpu[i].held_ns, __ATOMIC_RELAXED);
		worst = held > worst ? held : worst;
		held = tw_pulse_pause_ns(&pulses->cpu[i], &now, &busy);
		worst = held > worst ? held : worst;
	}
	return worst;
}

static inline bool tw_pulses_beat(struct tw_pulses *pulses)
{
	return tw_pulses_held_ns(pulses) < tw_pulse_limit_ns();
}

/* Not for a CPU that is held still: its thread would not come. */
static inline void tw_pulses_stop(struct tw_pulses *pulses)
{
	unsigned int i;

	for (i = 0; i < pulses->nr; i++)
		__atomic_store_n(&pulses->cpu[i].stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < pulses->nr; i++)
		pthread_join(pulses->cpu[i].thread, NULL);
	pulses->nr = 0;
}

#endif /* PULSE_H */

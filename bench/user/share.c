// SPDX-License-Identifier: GPL-2.0
/*
 * share.c - bench_share: what the wheels of one user leave of a CPU to others
 *
 *   bench_share [WHEELSxTIMERS...]
 *
 * Opens so many wheels of a tick of 4,096 ns on the first CPU, each with a one-shot timer
 * for each tick, and sleeps. A program that spins there counts the ticks of the kernel
 * that find it running, and those that find the CPU not idle: its own CPU time would
 * have the softirqs in it. Another user has a timer each millisecond on that CPU, and is
 * told by the records how late they are. Has to be root, to be two users.
 *
 * In a virtual machine:
 *
 *   make -C bench/user
 *   tools/vm/run --kernel 7.3 --mem 2048 --file build/bench/bench_share -- ./bench_share
 */
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/twheel.h>

#define NSEC		1000000000ULL
#define MSEC		1000000ULL
#define TICK		4096
#define MAX_WHEELS	256
#define BATCH		256
#define OTHERS		4000	/* timers of the other user, a millisecond apart */
#define OTHER		65534

static __u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC + ts.tv_nsec;
}

static void sleep_until(__u64 end)
{
	struct timespec ts = { .tv_sec = end / NSEC, .tv_nsec = end % NSEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
		;
}

static void use_first_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "sched_setaffinity");
}

static int open_wheel(__u32 capacity)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = CLOCK_MONOTONIC,
		.capacity = capacity,
		.tick_ns = TICK,
	};
	int fd = open("/dev/twheel", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, TWHEEL_IOC_SETUP, &setup))
		err(1, "/dev/twheel");
	return fd;
}

/* @nr timers from @first on, @step apart */
static void arm(int fd, __u64 first, __u64 step, __u32 nr)
{
	static struct twheel_op ops[BATCH];
	struct twheel_submit submit = { .size = sizeof(submit), .ops = (uintptr_t)ops };
	__u32 i, k;

	for (i = 0; i < nr; i += submit.nr) {
		submit.nr = nr - i < BATCH ? nr - i : BATCH;
		for (k = 0; k < submit.nr; k++)
			ops[k] = (struct twheel_op) {
				.opcode = TWHEEL_OP_ARM,
				.expires_ns = first + (i + k) * step,
			};
		if (ioctl(fd, TWHEEL_IOC_SUBMIT, &submit) != (int)submit.nr)
			err(1, "SUBMIT");
		for (k = 0; k < submit.nr; k++)
			if (ops[k].res)
				errx(1, "a timer: %s", strerror(-ops[k].res));
	}
}

static __u32 armed(int fd)
{
	struct twheel_info info = { .size = sizeof(info) };

	if (ioctl(fd, TWHEEL_IOC_INFO, &info))
		err(1, "INFO");
	return info.armed;
}

/* Ticks that found the first CPU in a program, and all but those that found it idle */
static void count_ticks(__u64 *user, __u64 *all)
{
	unsigned long long u, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");

	if (!f || fscanf(f, "cpu %*[^\n] cpu0 %llu %llu %llu %llu %llu %llu %llu", &u, &nice,
			 &system, &idle, &iowait, &irq, &softirq) != 7)
		errx(1, "cannot make sense of /proc/stat");
	fclose(f);
	*user = u + nice;
	*all = u + nice + system + irq + softirq;
}

/* A process that begins when it has been prepared and lives until it is killed */
static pid_t start(void (*run)(int ready, __u64 a, __u64 b), __u64 a, __u64 b)
{
	int pipes[2];
	pid_t pid;
	char c;

	if (pipe(pipes))
		err(1, "pipe");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		close(pipes[0]);
		run(pipes[1], a, b);
		exit(0);
	}
	close(pipes[1]);
	if (read(pipes[0], &c, 1) != 1)
		errx(1, "a process failed");
	close(pipes[0]);
	return pid;
}

static __u64 *flood_first;	/* when it begins, 0 when it is over; shared */

/* Arms, tells when they are due, and sleeps until all have fired. */
static void flood(int ready, __u64 wheels, __u64 timers)
{
	static int fds[MAX_WHEELS];
	__u64 i, begin, first, took = NSEC / 2;

	use_first_cpu();
	for (i = 0; i < wheels; i++)
		fds[i] = open_wheel(timers);
	/* A wheel that has no room for more yet would take its time to get that. */
	begin = now_ns();
	arm(fds[0], TWHEEL_NEVER / 4, 0, timers);
	took += 3 * (now_ns() - begin) * wheels;
	close(fds[0]);
	fds[0] = open_wheel(timers);
	first = now_ns() + took;
	for (i = 0; i < wheels; i++)
		arm(fds[i], first, TICK, timers);
	if (now_ns() > first)
		errx(1, "they fired before all were armed");
	*flood_first = first;
	if (write(ready, "", 1) != 1)
		err(1, "write");
	sleep_until(first);
	for (i = 0; i < wheels; i++)
		while (armed(fds[i]))
			sleep_until(now_ns() + 20 * MSEC);
	*flood_first = 0;
	pause();
}

static int compare(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

/* How late the timers of another user were that were due until @end: p50, p99, most */
static void print_lateness(int fd, __u64 end)
{
	static struct twheel_event ev[OTHERS];
	static __u64 late[OTHERS];
	ssize_t got = read(fd, ev, sizeof(ev));
	size_t i, nr = 0;
	__u64 half, nearly;

	for (i = 0; got > 0 && i < got / sizeof(*ev); i++)
		if (ev[i].expires_ns < end)
			late[nr++] = ev[i].fired_ns - ev[i].expires_ns;
	if (!nr) {
		printf("%10s %10s %10s\n", "-", "-", "-");
		return;
	}
	qsort(late, nr, sizeof(*late), compare);
	half = late[nr / 2];
	nearly = late[nr * 99 / 100];
	printf("%10.3f %10.3f %10.3f\n", half / 1e6, nearly / 1e6, late[nr - 1] / 1e6);
}

static void measure(unsigned int wheels, unsigned int timers)
{
	__u64 user, all, user_after, all_after, first, begin;
	unsigned int i;
	int other, uid = geteuid();
	pid_t pid = -1;

	*flood_first = 0;
	if (wheels)
		pid = start(flood, wheels, timers);
	begin = wheels ? *flood_first : now_ns() + 100 * MSEC;
	if (seteuid(OTHER))
		err(1, "seteuid");
	other = open_wheel(OTHERS);
	arm(other, begin, MSEC, OTHERS);
	if (seteuid(uid))
		err(1, "seteuid");
	first = begin;
	while (now_ns() < first)
		;
	count_ticks(&user, &all);
	while (wheels ? __atomic_load_n(flood_first, __ATOMIC_ACQUIRE) : now_ns() < first + NSEC)
		for (i = 0; i < 100000; i++)
			asm volatile("");
	count_ticks(&user_after, &all_after);
	printf("%7u %9u %9.2f %7.0f%% ", wheels, timers, (now_ns() - first) / 1e9,
	       all_after > all ? (user_after - user) * 100.0 / (all_after - all) : 100);
	print_lateness(other, now_ns());
	fflush(stdout);
	close(other);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	static char * const usual[] = { "64x3800", "64x15000", "16x61000", "4x244000", "1x244000" };
	int nr = argc > 1 ? argc - 1 : (int)(sizeof(usual) / sizeof(*usual)), i;
	char * const *wanted = argc > 1 ? argv + 1 : usual;
	unsigned int wheels, timers;

	flood_first = mmap(NULL, sizeof(*flood_first), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (flood_first == MAP_FAILED)
		err(1, "mmap");
	use_first_cpu();
	printf("                                       late by ms, another user's\n");
	printf(" wheels    timers   seconds   share        p50        p99       most\n");
	measure(0, 0);
	for (i = 0; i < nr; i++) {
		if (sscanf(wanted[i], "%ux%u", &wheels, &timers) != 2 || !wheels ||
		    wheels > MAX_WHEELS || !timers)
			errx(2, "usage: bench_share [WHEELSxTIMERS...]");
		measure(wheels, timers);
	}
	return 0;
}

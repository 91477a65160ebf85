// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - bench_user: twheel against the other timers of Linux, from user space
 *
 * Rounds contain all peers, so that noise of the machine meets all alike.
 */
#include "bench.h"

#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/utsname.h>

/* Everything once, not to measure but to see that it works. */
static const struct config quick = {
	.n = { { 1000 }, { 1, 1000 } },
	.n_nr = { 1, 2 },
	.rounds = 1,
	.seed = 1,
	.samples = 6,
	.wake_n = 1000,
	.wake_span = NSEC / 2,
	.spread = NSEC / 10,
	.idle = NSEC / 10,
	.pairing = NSEC / 10,
	.cap = NSEC / 20,
	.connections = 1000,
	.rpcs = 1000,
	.paced = 10,
	.mix_ns = NSEC / 4,
};

static const struct {
	const char *name;
	enum op_group group;
} groups[] = {
	{ "ops", GROUP_OPS },
	{ "lateness", GROUP_LATENESS },
	{ "wakeups", GROUP_WAKEUPS },
	{ "memory", GROUP_MEMORY },
	{ "threads", GROUP_THREADS },
	{ "mixes", GROUP_MIXES },
	{ "all", GROUP_ALL },
};

static const struct peer *peers[32];
static unsigned int peers_nr;
static __u32 peers_wanted;

static void collect_peers(void)
{
	const struct peer *p;

	for (p = twheel_peers; p->name; p++)
		peers[peers_nr++] = p;
	for (p = libtwheel_peers; p->name; p++)
		peers[peers_nr++] = p;
	peers[peers_nr++] = &timerfd_peer;
	peers[peers_nr++] = &heap_peer;
	peers[peers_nr++] = &posix_peer;
#ifdef HAVE_uring
	peers[peers_nr++] = &uring_peer;
#endif
#ifdef HAVE_libevent
	peers[peers_nr++] = &libevent_peer;
#endif
#ifdef HAVE_libev
	peers[peers_nr++] = &libev_peer;
#endif
#ifdef HAVE_libuv
	peers[peers_nr++] = &libuv_peer;
#endif
	for (p = bare_peers; p->name; p++)
		peers[peers_nr++] = p;
	peers_wanted = (1U << peers_nr) - 1;
}

static void list(void)
{
	unsigned int i;
	enum op op;

	puts("peers:");
	for (i = 0; i < peers_nr; i++)
		printf("  %s\n", peers[i]->name);
#ifndef HAVE_uring
	puts("  (uring was left out: no static liburing)");
#endif
#ifndef HAVE_libevent
	puts("  (libevent was left out: no static libevent)");
#endif
#ifndef HAVE_libev
	puts("  (libev was left out: no static libev)");
#endif
#ifndef HAVE_libuv
	puts("  (libuv was left out: no static libuv)");
#endif
	for (i = 0; i < ARRAY_SIZE(groups) - 1; i++) {
		printf("%s:", groups[i].name);
		for (op = 0; op < OP_NR; op++) {
			if (ops_of(groups[i].group) & (1ULL << op))
				printf(" %s", op_name(op));
		}
		puts("");
	}
}

static void help(FILE *to)
{
	fputs("usage: bench_user [OPTION...]\n"
	      "\n"
	      "Measures timers of Linux from user space. Writes a line of JSON for each\n"
	      "figure, in nanoseconds per operation if not told otherwise.\n"
	      "\n"
	      "  --quick          everything once with small numbers, to see that it works;\n"
	      "                   the options after it count\n"
	      "  --peers A,B,...  only these (default: all)\n"
	      "  --ops A,B,...    only these operations or groups of them: ops, lateness,\n"
	      "                   wakeups, memory, threads, which are \"all\", and mixes\n"
	      "                   (default: all)\n"
	      "  --n N,N,...      timers pending, for threads on each wheel (default:\n"
	      "                   1000,10000,100000; for memory 1,32,1024,10000,\n"
	      "                   1000000)\n"
	      "  --rounds R       repeat everything, peer after peer (default: 3)\n"
	      "  --samples S      of lateness for each delay (default: 300; a sixth of it\n"
	      "                   for 100 ms)\n"
	      "  --wakeup-timers N  timers in the count of wake-ups (default: 100000)\n"
	      "  --seed S         of the random numbers (default: 1)\n"
	      "  --tsc-khz F      in the mixes, time stands still while a program runs; what\n"
	      "                   it takes is told by the processor's counter, of F kHz\n"
	      "  --list           tell the peers and the operations\n"
	      "\n"
	      "Needs root for more descriptors, signals and figures of memory.\n", to);
}

static __u64 parse_number(const char *text, __u64 min, __u64 max)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < min || value > max)
		errx(2, "not a number that can be: %s", text);
	return value;
}

static __u32 peer_bit(const char *name)
{
	unsigned int i;

	for (i = 0; i < peers_nr; i++) {
		if (!strcmp(peers[i]->name, name))
			return 1U << i;
	}
	errx(2, "no such peer (see --list): %s", name);
}

static __u64 op_bits(const char *name)
{
	unsigned int i;
	enum op op;

	for (i = 0; i < ARRAY_SIZE(groups); i++) {
		if (!strcmp(groups[i].name, name))
			return ops_of(groups[i].group);
	}
	for (op = 0; op < OP_NR; op++) {
		if (!strcmp(op_name(op), name))
			return 1ULL << op;
	}
	errx(2, "no such operation (see --list): %s", name);
}

static void parse_peers(char *text)
{
	char *name;

	for (peers_wanted = 0; (name = strsep(&text, ","));)
		peers_wanted |= peer_bit(name);
}

static void parse_ops(char *text)
{
	char *name;

	for (config.ops = 0; (name = strsep(&text, ","));)
		config.ops |= op_bits(name);
}

static void parse_n(char *text)
{
	unsigned int nr = 0;
	char *one;

	while ((one = strsep(&text, ","))) {
		if (nr == MAX_LIST)
			errx(2, "too many numbers, from: %s", one);
		config.n[0][nr] = parse_number(one, 1, 1U << 24);
		config.n[1][nr] = config.n[0][nr];
		nr++;
	}
	config.n_nr[0] = nr;
	config.n_nr[1] = nr;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "peers", required_argument, NULL, 'p' },
		{ "ops", required_argument, NULL, 'o' },
		{ "n", required_argument, NULL, 'n' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "samples", required_argument, NULL, 's' },
		{ "wakeup-timers", required_argument, NULL, 'w' },
		{ "seed", required_argument, NULL, 'e' },
		{ "tsc-khz", required_argument, NULL, 't' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	__u64 before;
	int c;

	config.ops = ops_of(GROUP_ALL);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			before = config.ops;
			config = quick;
			config.ops = before;
			break;
		case 'p':
			parse_peers(optarg);
			break;
		case 'o':
			parse_ops(optarg);
			break;
		case 'n':
			parse_n(optarg);
			break;
		case 'r':
			config.rounds = parse_number(optarg, 1, 1000);
			break;
		case 's':
			config.samples = parse_number(optarg, 1, 1000000);
			break;
		case 'w':
			config.wake_n = parse_number(optarg, 1, 1U << 24);
			break;
		case 'e':
			config.seed = parse_number(optarg, 0, UINT64_MAX);
			break;
		case 't':
			config.tsc_khz = parse_number(optarg, 0, UINT32_MAX);
			break;
		case 'l':
			list();
			exit(0);
		case 'h':
			help(stdout);
			exit(0);
		default:
			help(stderr);
			exit(2);
		}
	}
	if (optind < argc)
		errx(2, "not an option: %s", argv[optind]);
}

static rlim_t most_descriptors(void)
{
	FILE *f = fopen("/proc/sys/fs/nr_open", "r");
	unsigned long nr = 0;

	if (f) {
		if (fscanf(f, "%lu", &nr) != 1)
			nr = 0;
		fclose(f);
	}
	return nr;
}

/* As high as can be; what then fails tells so itself. */
static void raise_limit(int which, rlim_t to)
{
	struct rlimit limit = { .rlim_cur = to, .rlim_max = to };

	if (!setrlimit(which, &limit) || getrlimit(which, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(which, &limit);
}

static void hangs(int sig)
{
	static const char text[] = "bench_user: a measurement does not end\n";

	(void)sig;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

typedef void measure_fn(const struct peer *p, __u32 n);

static bool begin(const struct peer *p, enum op_group group, __u32 n)
{
	if (!(p->groups & group) || !(config.ops & ops_of(group)))
		return false;
	fprintf(stderr, "bench_user: round %u, %s, %u\n", config.round, p->name, n);
	alarm(PATIENCE_S);
	return true;
}

static void measure_peers(enum op_group group, __u32 n, measure_fn *measure)
{
	unsigned int i;

	for (i = 0; i < peers_nr; i++) {
		if ((peers_wanted & (1U << i)) && begin(peers[i], group, n))
			measure(peers[i], n);
	}
}

static void lateness(const struct peer *p, __u32 n)
{
	(void)n;
	measure_lateness(p);
}

static void wakeups(const struct peer *p, __u32 n)
{
	(void)n;
	measure_wakeups(p);
}

static void empty(const struct peer *p, __u32 n)
{
	(void)n;
	measure_empty(p);
}

static void mixes(const struct peer *p, __u32 n)
{
	(void)n;
	measure_mixes(p);
}

static void run_round(void)
{
	unsigned int i;

	for (i = 0; i < config.n_nr[0]; i++)
		measure_peers(GROUP_OPS, config.n[0][i], measure_ops);
	measure_peers(GROUP_LATENESS, 1, lateness);
	measure_peers(GROUP_WAKEUPS, config.wake_n, wakeups);
	measure_peers(GROUP_MEMORY, 0, empty);
	for (i = 0; i < config.n_nr[1]; i++)
		measure_peers(GROUP_MEMORY, config.n[1][i], measure_memory);
	for (i = 0; i < config.n_nr[0]; i++)
		measure_peers(GROUP_THREADS, config.n[0][i], measure_threads);
	measure_peers(GROUP_MIXES, 0, mixes);
}

int main(int argc, char **argv)
{
	struct utsname uts;

	collect_peers();
	parse(argc, argv);
	raise_limit(RLIMIT_NOFILE, most_descriptors());
	raise_limit(RLIMIT_SIGPENDING, 1U << 24);
	signal(SIGALRM, hangs);
	setvbuf(stdout, NULL, _IOLBF, 0);
	uname(&uts);
	printf("{\"bench\":\"user\",\"kernel\":\"%s\",\"cpus\":%ld,", uts.release,
	       sysconf(_SC_NPROCESSORS_ONLN));
	printf("\"clock\":\"monotonic\",\"seed\":%llu}\n", config.seed);
	for (config.round = 1; config.round <= config.rounds; config.round++)
		run_round();
	if (fflush(stdout) || ferror(stdout))
		errx(1, "cannot write: %s", strerror(errno));
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * cache.c - a cache whose entries free themselves when they expire
 *
 *	cache [manual]
 *
 * Takes commands from stdin, one a line: "set KEY MS VALUE" keeps a value for so long, and
 * "slide KEY MS VALUE" until nobody has got it for so long; "get KEY", "del KEY", and
 * "wait MS" before the next command.
 *
 * Nothing has to look for what has expired, as each entry has a timer. On the manual clock
 * time passes by "wait" only, and all at once: that is how to test a program with timers of
 * hours, and it comes out the same each time.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <twheel.h>
#include <unistd.h>

#define NR_BUCKETS	1024
#define MAX_MS		1000000000000ULL

struct entry {
	LIST_ENTRY(entry) others;
	struct twheel_timer expiry;
	uint64_t slide_ns;	/* how much longer it lives when it is got, or 0 */
	char key[64];
	char value[256];
};

static LIST_HEAD(, entry) buckets[NR_BUCKETS];
static unsigned long nr_entries;
static bool manual;

static unsigned int bucket(const char *key)
{
	unsigned int hash = 5381;

	while (*key)
		hash = hash * 33 + (unsigned char)*key++;
	return hash % NR_BUCKETS;
}

static struct entry *find(const char *key)
{
	struct entry *e;

	LIST_FOREACH(e, &buckets[bucket(key)], others)
		if (!strcmp(e->key, key))
			break;
	return e;
}

/* For any reason, so that the timer may be armed or not. */
static void forget(struct twheel *w, struct entry *e)
{
	twheel_cancel(w, &e->expiry);
	LIST_REMOVE(e, others);
	nr_entries--;
	free(e);
}

static void on_expiry(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct entry *e = TWHEEL_CONTAINER(t, struct entry, expiry);

	(void)missed;
	printf("%s has expired\n", e->key);
	forget(w, e);
}

static void set(struct twheel *w, const char *key, uint64_t ns, bool slide, const char *value)
{
	struct entry *e = calloc(1, sizeof(*e)), *old = find(key);

	if (!e || twheel_arm(w, &e->expiry, ns, on_expiry))
		errx(1, "no memory");
	snprintf(e->key, sizeof(e->key), "%s", key);
	snprintf(e->value, sizeof(e->value), "%s", value);
	e->slide_ns = slide ? ns : 0;
	if (old)
		forget(w, old);
	LIST_INSERT_HEAD(&buckets[bucket(key)], e, others);
	nr_entries++;
}

static void get(struct twheel *w, const char *key)
{
	struct entry *e = find(key);

	printf("%s is %s\n", key, e ? e->value : "not there");
	if (e && e->slide_ns)
		twheel_arm(w, &e->expiry, e->slide_ns, on_expiry);
}

static void del(struct twheel *w, const char *key)
{
	struct entry *e = find(key);

	if (e)
		forget(w, e);
}

static void go_on(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)t;
	(void)missed;
}

/* Whether it is a command. */
static bool execute(struct twheel *w, const char *line, struct twheel_timer *pause)
{
	unsigned long long ms = 0;
	char key[64], value[256];

	if (sscanf(line, "set %63s %llu %255[^\n]", key, &ms, value) == 3 && ms <= MAX_MS)
		set(w, key, ms * TWHEEL_MSEC, false, value);
	else if (sscanf(line, "slide %63s %llu %255[^\n]", key, &ms, value) == 3 && ms <= MAX_MS)
		set(w, key, ms * TWHEEL_MSEC, true, value);
	else if (sscanf(line, "get %63s", key) == 1)
		get(w, key);
	else if (sscanf(line, "del %63s", key) == 1)
		del(w, key);
	else if (sscanf(line, "wait %llu", &ms) == 1 && ms <= MAX_MS)
		return !(manual ? twheel_advance(w, twheel_now(w) + ms * TWHEEL_MSEC) :
				  twheel_arm(w, pause, ms * TWHEEL_MSEC, go_on));
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	struct twheel_options options = {};
	struct twheel_timer pause = {};
	char line[512];
	struct twheel *w;
	unsigned int i;

	manual = argc == 2 && !strcmp(argv[1], "manual");
	if (argc > 1 && !manual)
		errx(2, "usage: cache [manual]");
	options.clock = manual ? TWHEEL_MANUAL : TWHEEL_MONOTONIC;
	if (twheel_open(&w, &options))
		errx(1, "no wheel");
	setvbuf(stdin, NULL, _IONBF, 0);	/* poll() is to know of each line */
	setvbuf(stdout, NULL, _IOLBF, 0);

	for (;;) {
		struct pollfd p[2] = {
			{ .fd = twheel_is_armed(&pause) ? -1 : STDIN_FILENO, .events = POLLIN },
			{ .fd = twheel_fd(w), .events = POLLIN },
		};

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			err(1, "poll");
		/* First: what has expired is not there for the command any more. */
		if (twheel_dispatch(w, 0) < 0)
			errx(1, "dispatch");
		if (!p[0].revents)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		if (!execute(w, line, &pause))
			printf("not a command: %s", line);
	}
	printf("%lu left\n", nr_entries);
	for (i = 0; i < NR_BUCKETS; i++)
		while (!LIST_EMPTY(&buckets[i]))
			forget(w, LIST_FIRST(&buckets[i]));
	twheel_close(w);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * crowd.c - many connections to an echo server that hangs up on who is silent for too long
 *
 *	crowd PORT CONNECTIONS IDLE_MS ROUNDS
 *
 * Nine in ten say something at first and in each round, two rounds in IDLE_MS, and are silent
 * then; the others always are. The server is to hang up on each of them, but on none within
 * IDLE_MS after the last that it echoed was said, or after connecting: it cannot have heard of
 * that before. So that is an error however slow the machine is.
 */
#include <err.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_MSEC	1000000ULL
#define AT_ONCE		256		/* so many wait to be accepted */
#define PATIENCE_MS	60000		/* what must come comes within this */

struct connection {
	int fd;
	bool talks;
	bool waits;		/* for its echo */
	uint64_t said_ns;
	uint64_t echoed_ns;	/* when that was said which was echoed last, or it connected */
};

static int epfd;
static uint64_t idle_ns, latest_ns;
static unsigned int nr_open, nr_waiting, nr_echoes, nr_early;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void say(struct connection *c)
{
	c->said_ns = now_ns();
	/* If it was hung up on by now the next read tells. */
	send(c->fd, "x", 1, MSG_NOSIGNAL);
	c->waits = true;
	nr_waiting++;
}

/* Takes an echo, or the end. */
static void hear(struct connection *c)
{
	uint64_t silent_ns;
	char byte;

	nr_waiting -= c->waits;
	c->waits = false;
	if (read(c->fd, &byte, 1) > 0) {
		c->echoed_ns = c->said_ns;
		nr_echoes++;
		return;
	}
	silent_ns = now_ns() - c->echoed_ns;
	nr_early += silent_ns < idle_ns;
	if (silent_ns > latest_ns)
		latest_ns = silent_ns;
	close(c->fd);
	c->fd = -1;
	nr_open--;
}

/* Whether anything was heard in time. */
static bool listen_for(int timeout_ms)
{
	struct epoll_event events[256];
	int i, nr = epoll_wait(epfd, events, 256, timeout_ms);

	for (i = 0; i < nr; i++)
		hear(events[i].data.ptr);
	return nr > 0;
}

static void join(struct connection *c, int port)
{
	struct sockaddr_in6 to = {
		.sin6_family = AF_INET6,
		.sin6_addr = in6addr_loopback,
		.sin6_port = htons(port),
	};
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };

	c->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	c->echoed_ns = now_ns();
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &event))
		err(1, "connection %u", nr_open);
	nr_open++;
	if (c->talks)
		say(c);
}

static void wait_for_echoes(void)
{
	while (nr_waiting && listen_for(PATIENCE_MS))
		;
}

static void talk(struct connection *all, unsigned int nr)
{
	uint64_t now, end_ns = now_ns() + idle_ns / 2;
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (all[i].talks && all[i].fd >= 0)
			say(&all[i]);
	wait_for_echoes();
	while ((now = now_ns()) < end_ns)
		listen_for((end_ns - now) / NSEC_PER_MSEC + 1);
}

/* 1 to @max, or how this is used */
static unsigned long number(const char *word, unsigned long max)
{
	char *end;
	unsigned long nr = strtoul(word, &end, 10);

	if (*end || !nr || nr > max)
		errx(2, "usage: crowd PORT CONNECTIONS IDLE_MS ROUNDS");
	return nr;
}

int main(int argc, char **argv)
{
	struct connection *all;
	struct rlimit files;
	unsigned int i, port, nr, rounds;

	port = number(argc == 5 ? argv[1] : "", 65535);
	nr = number(argv[2], 60000);
	idle_ns = number(argv[3], 3600000) * NSEC_PER_MSEC;
	rounds = number(argv[4], 1000000);

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	epfd = epoll_create1(EPOLL_CLOEXEC);
	all = calloc(nr, sizeof(*all));
	if (epfd < 0 || !all)
		err(1, "crowd");

	for (i = 0; i < nr; i++) {
		all[i].talks = i % 10;
		join(&all[i], port);
		if (!((i + 1) % AT_ONCE))
			wait_for_echoes();
	}
	wait_for_echoes();
	printf("%u connections, %u of them open\n", nr, nr_open);
	for (i = 0; i < rounds; i++)
		talk(all, nr);
	printf("%u echoes, %u open\n", nr_echoes, nr_open);
	while (nr_open && listen_for(idle_ns / NSEC_PER_MSEC + PATIENCE_MS))
		;
	printf("%u hung up on, %u early, after %llu ms at most\n", nr - nr_open, nr_early,
	       (unsigned long long)(latest_ns / NSEC_PER_MSEC));
	free(all);
	return nr_open || nr_early;
}

// SPDX-License-Identifier: MIT
/*
 * rpc.c - calls over UDP, each with a deadline, sent again until they are answered
 *
 *	rpc [CALLS [LOSS_PERCENT [DEADLINE_MS]]]
 *
 * Each call has two timers: one for its deadline, and one that sends it once more, after
 * twice as long each time. An answer cancels both, and as that is so of nearly all of
 * them, they cost hardly a system call. The server is a child that loses some of what it
 * gets.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <twheel.h>
#include <unistd.h>

#define PER_SECOND	10000
#define FIRST_RETRY_NS	(20 * TWHEEL_MSEC)

struct call {
	struct twheel_timer deadline;
	struct twheel_timer retry;
	uint64_t retry_ns;
	unsigned int ends;
};

static struct call *calls;
static unsigned int nr_calls, loss_percent, deadline_ms;
static unsigned int started, answered, timed_out, retries, late;
static int fd;

static void finish(struct twheel *w, struct call *c)
{
	twheel_cancel(w, &c->deadline);
	twheel_cancel(w, &c->retry);
	c->ends++;
}

static void on_deadline(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)missed;
	timed_out++;
	finish(w, TWHEEL_CONTAINER(t, struct call, deadline));
}

static void on_retry(struct twheel *w, struct twheel_timer *t, uint64_t missed);

/* What cannot be sent now is the same as what gets lost on its way. */
static void call(struct twheel *w, struct call *c)
{
	uint32_t number = c - calls;

	send(fd, &number, sizeof(number), MSG_DONTWAIT);
	if (twheel_arm(w, &c->retry, c->retry_ns, on_retry))
		errx(1, "no timer");
	c->retry_ns *= 2;
}

static void on_retry(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)missed;
	retries++;
	call(w, TWHEEL_CONTAINER(t, struct call, retry));
}

/* As many calls as it is time for: several a tick. */
static void on_start(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)t;
	for (missed++; missed; missed--) {
		struct call *c = &calls[started++];

		c->retry_ns = FIRST_RETRY_NS;
		if (twheel_arm(w, &c->deadline, deadline_ms * TWHEEL_MSEC, on_deadline))
			errx(1, "no timer");
		call(w, c);
	}
}

/* The answer may be to a call that has ended: it came too late, or for the second time. */
static void take_answers(struct twheel *w)
{
	uint32_t number;

	while (recv(fd, &number, sizeof(number), MSG_DONTWAIT) == sizeof(number)) {
		if (number >= started || calls[number].ends) {
			late++;
			continue;
		}
		answered++;
		finish(w, &calls[number]);
	}
}

static void serve(int s)
{
	struct sockaddr_in6 from;
	socklen_t size = sizeof(from);
	uint32_t number;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recvfrom(s, &number, sizeof(number), 0, (struct sockaddr *)&from, &size) > 0)
		if ((unsigned int)rand() % 100 >= loss_percent)
			sendto(s, &number, sizeof(number), 0, (struct sockaddr *)&from, size);
	err(1, "server");
}

/* Starts the server and connects to it. */
static pid_t connect_to_server(void)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	int s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(to);
	pid_t child;

	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0 || fd < 0 || bind(s, (struct sockaddr *)&to, size) ||
	    getsockname(s, (struct sockaddr *)&to, &size) ||
	    connect(fd, (struct sockaddr *)&to, size))
		err(1, "socket");
	child = fork();
	if (child < 0)
		err(1, "server");
	if (!child)
		serve(s);
	return child;
}

/* The argument @i, @min to @max, or how they are used */
static unsigned int number(char **argv, int i, unsigned int min, unsigned int max)
{
	char *end;
	unsigned long nr = strtoul(argv[i], &end, 10);

	if (*end || end == argv[i] || nr < min || nr > max)
		errx(2, "usage: rpc [CALLS [LOSS_PERCENT [DEADLINE_MS]]]");
	return nr;
}

int main(int argc, char **argv)
{
	struct twheel_spec spec = { .interval_ns = TWHEEL_SEC / PER_SECOND };
	struct twheel_timer start = {};
	struct twheel_counts counts;
	struct pollfd p[2];
	struct twheel *w;
	unsigned int i;
	pid_t child;

	nr_calls = argc > 1 ? number(argv, 1, 1, 1000000) : 10000;
	loss_percent = argc > 2 ? number(argv, 2, 0, 100) : 20;
	deadline_ms = argc > 3 ? number(argv, 3, 1, 3600000) : 1000;
	if (argc > 4)
		number(argv, 4, 1, 0);
	calls = calloc(nr_calls, sizeof(*calls));
	child = connect_to_server();
	if (!calls || twheel_open(&w, NULL))
		errx(1, "no wheel");
	spec.count = nr_calls;
	spec.expires_ns = twheel_now(w);
	if (twheel_arm_spec(w, &start, &spec, on_start))
		errx(1, "no timer");

	p[0] = (struct pollfd){ .fd = fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = twheel_fd(w), .events = POLLIN };
	while (answered + timed_out < nr_calls) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			err(1, "poll");
		/* First: what is here in time counts, however late one looks. */
		take_answers(w);
		if (twheel_dispatch(w, 0) < 0)
			errx(1, "dispatch");
	}
	kill(child, SIGKILL);

	for (i = 0; i < nr_calls; i++)
		if (calls[i].ends != 1)
			errx(1, "call %u has ended %u times", i, calls[i].ends);
	twheel_stats(w, &counts);
	printf("%u calls: %u answered, %u timed out\n", nr_calls, answered, timed_out);
	printf("%u retries, %u answers came late or twice\n", retries, late);
	printf("%llu timers armed, %llu cancelled, %llu system calls for them\n",
	       (unsigned long long)counts.arms, (unsigned long long)counts.cancels,
	       (unsigned long long)counts.syscalls);
	twheel_close(w);
	return 0;
}

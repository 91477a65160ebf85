// SPDX-License-Identifier: MIT
/*
 * pace.c - sends datagrams at a steady rate, and makes up for those that it was late for
 *
 *	pace PORT [DATAGRAMS [INTERVAL_US]]
 *
 * A periodic timer does not drift: its n-th period ends n intervals after it was armed,
 * however late that is seen. If periods have passed without a call, since others had the
 * processor, the next call is told how many. So in the end each datagram was sent.
 */
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <twheel.h>

static int fd;
static uint32_t sent;
static uint64_t begin_ns, interval_ns, calls, late_sum_ns, late_max_ns;

/* All datagrams that are due have the number of their period. */
static void on_period(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	uint64_t late_ns = twheel_now(w) - (begin_ns + (sent + 1) * interval_ns);

	(void)t;
	for (missed++; missed; missed--) {
		/* That nobody is there to receive it does not matter. */
		if (send(fd, &sent, sizeof(sent), 0) < 0 && errno != ECONNREFUSED)
			err(1, "send");
		sent++;
	}
	calls++;
	late_sum_ns += late_ns;
	if (late_ns > late_max_ns)
		late_max_ns = late_ns;
}

/* The argument @i, 1 to @max, or how they are used */
static unsigned int number(char **argv, int i, unsigned int max)
{
	char *end;
	unsigned long nr = strtoul(argv[i] ? argv[i] : "", &end, 10);

	if (*end || !nr || nr > max)
		errx(2, "usage: pace PORT [DATAGRAMS [INTERVAL_US]]");
	return nr;
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	struct twheel_options options = { .tick_ns = 100 * TWHEEL_USEC };
	struct twheel_timer period = {};
	struct twheel_spec spec = {};
	struct twheel *w;
	int ret;

	to.sin6_port = htons(number(argv, 1, 65535));
	spec.count = argc > 2 ? number(argv, 2, 1000000000) : 1000;
	interval_ns = (argc > 3 ? number(argv, 3, 1000000000) : 1000) * TWHEEL_USEC;
	if (argc > 4)
		number(argv, 4, 0);
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "port %s", argv[1]);

	ret = twheel_open(&w, &options);
	if (ret)
		errx(1, "wheel: %s", strerror(-ret));
	begin_ns = twheel_now(w);
	spec.expires_ns = begin_ns + interval_ns;
	spec.interval_ns = interval_ns;
	spec.misfire = TWHEEL_MISFIRE_COUNT;
	ret = twheel_arm_spec(w, &period, &spec, on_period);
	/* Until the last period, or to go on after this process was stopped. */
	while (!ret && twheel_is_armed(&period)) {
		ret = twheel_run(w);
		if (ret == -EINTR)
			ret = 0;
	}
	if (ret)
		errx(1, "wheel: %s", strerror(-ret));
	printf("%u sent by %llu calls, %llu us late on average, %llu us at most\n", sent,
	       (unsigned long long)calls, (unsigned long long)(late_sum_ns / calls / 1000),
	       (unsigned long long)(late_max_ns / 1000));
	twheel_close(w);
	return 0;
}

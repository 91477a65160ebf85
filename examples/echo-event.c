// SPDX-License-Identifier: MIT
/*
 * echo-event.c - an echo server on libevent that hangs up on who is silent for too long
 *
 *	echo-event PORT [IDLE_MS]
 *
 * What a program with libevent has event_add() and its time-out for, a timer of the wheel
 * does here: what is read pushes it later, which is a store, and not a move in a heap.
 */
#include <err.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <twheel/event.h>
#include <unistd.h>

struct connection {
	struct twheel_timer idle;
	struct event *readable;
	int fd;
};

static struct twheel *wheel;
static uint64_t idle_ns = 30 * TWHEEL_SEC;

/* For any reason, so that the timer may be armed or not. */
static void hang_up(struct connection *c)
{
	twheel_cancel(wheel, &c->idle);
	if (c->readable)
		event_free(c->readable);
	close(c->fd);
	free(c);
}

static void on_idle(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	hang_up(TWHEEL_CONTAINER(t, struct connection, idle));
}

static void echo(evutil_socket_t fd, short what, void *connection)
{
	struct connection *c = connection;
	char buffer[4096];
	ssize_t nr = read(fd, buffer, sizeof(buffer));

	(void)what;
	/* Who does not read what it gets is hung up on as well. */
	if (nr <= 0 || send(fd, buffer, nr, MSG_NOSIGNAL) != nr ||
	    twheel_arm(wheel, &c->idle, idle_ns, on_idle))
		hang_up(c);
}

static void welcome(struct evconnlistener *listener, evutil_socket_t fd,
		    struct sockaddr *from, int size, void *arg)
{
	struct connection *c = calloc(1, sizeof(*c));

	(void)from;
	(void)size;
	(void)arg;
	if (!c) {
		close(fd);
		return;
	}
	c->fd = fd;
	c->readable = event_new(evconnlistener_get_base(listener), fd, EV_READ | EV_PERSIST,
				echo, c);
	if (!c->readable || event_add(c->readable, NULL) ||
	    twheel_arm(wheel, &c->idle, idle_ns, on_idle))
		hang_up(c);
}

/* 1 to @max, or how this is used */
static unsigned long number(const char *word, unsigned long max)
{
	char *end;
	unsigned long nr = strtoul(word, &end, 10);

	if (*end || !nr || nr > max)
		errx(2, "usage: echo-event PORT [IDLE_MS]");
	return nr;
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 };
	struct event_base *base = event_base_new();
	int ret;

	to.sin6_port = htons(number(argc == 2 || argc == 3 ? argv[1] : "", 65535));
	if (argc > 2)
		idle_ns = number(argv[2], 1000000000) * TWHEEL_MSEC;

	ret = twheel_open(&wheel, NULL);
	if (ret)
		errx(1, "wheel: %s", strerror(-ret));
	if (!base || !twheel_event_add(base, wheel))
		errx(1, "no event loop");

	if (!evconnlistener_new_bind(base, welcome, NULL,
				     LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC, -1,
				     (struct sockaddr *)&to, sizeof(to)))
		err(1, "port %s", argv[1]);
	event_base_dispatch(base);
	errx(1, "the event loop has ended");
}

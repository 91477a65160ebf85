// SPDX-License-Identifier: MIT
/*
 * echo-epoll.c - an echo server that hangs up on who is silent for too long
 *
 *	echo-epoll PORT [IDLE_MS]
 *
 * Each connection has a timer. Whatever it sends pushes the timer later, which is a
 * store: no system call, however many connections there are.
 */
#define _GNU_SOURCE	/* accept4() */
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <twheel/epoll.h>
#include <unistd.h>

struct connection {
	struct twheel_timer idle;
	int fd;
};

static uint64_t idle_ns = 30 * TWHEEL_SEC;

/* For any reason, so that the timer may be armed or not. */
static void hang_up(struct twheel *w, struct connection *c)
{
	twheel_cancel(w, &c->idle);
	close(c->fd);
	free(c);
}

static void on_idle(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)missed;
	hang_up(w, TWHEEL_CONTAINER(t, struct connection, idle));
}

static void welcome(struct twheel *w, int epfd, int listener)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };

	if (!c)
		return;
	c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (c->fd < 0) {
		free(c);
		return;
	}
	if (twheel_arm(w, &c->idle, idle_ns, on_idle) ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &event))
		hang_up(w, c);
}

static void echo(struct twheel *w, struct connection *c)
{
	char buffer[4096];
	ssize_t nr = read(c->fd, buffer, sizeof(buffer));

	/* Who does not read what it gets is hung up on as well. */
	if (nr <= 0 || send(c->fd, buffer, nr, MSG_NOSIGNAL) != nr ||
	    twheel_arm(w, &c->idle, idle_ns, on_idle))
		hang_up(w, c);
}

/* 1 to @max, or how this is used */
static unsigned long number(const char *word, unsigned long max)
{
	char *end;
	unsigned long nr = strtoul(word, &end, 10);

	if (*end || !nr || nr > max)
		errx(2, "usage: echo-epoll PORT [IDLE_MS]");
	return nr;
}

static int listen_on(int port)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int on = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&to, sizeof(to)) || listen(fd, SOMAXCONN))
		err(1, "port %d", port);
	return fd;
}

int main(int argc, char **argv)
{
	struct epoll_event events[64];
	int epfd = epoll_create1(EPOLL_CLOEXEC), listener, nr, i, ret;
	struct twheel *w;

	listener = listen_on(number(argc == 2 || argc == 3 ? argv[1] : "", 65535));
	if (argc > 2)
		idle_ns = number(argv[2], 1000000000) * TWHEEL_MSEC;
	events[0] = (struct epoll_event){ .events = EPOLLIN };
	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, listener, events))
		err(1, "epoll");
	ret = twheel_open(&w, NULL);
	if (!ret)
		ret = twheel_epoll_add(epfd, w);
	if (ret)
		errx(1, "wheel: %s", strerror(-ret));

	while ((nr = epoll_wait(epfd, events, 64, -1)) >= 0 || errno == EINTR) {
		bool due = false;

		for (i = 0; i < nr; i++) {
			if (!events[i].data.ptr)
				welcome(w, epfd, listener);
			else if (events[i].data.ptr == w)
				due = true;
			else
				echo(w, events[i].data.ptr);
		}
		/* Last: it frees connections, which other events may be about. */
		if (due && twheel_dispatch(w, 0) < 0)
			errx(1, "dispatch");
	}
	err(1, "epoll_wait");
}

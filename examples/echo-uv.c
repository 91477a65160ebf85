// SPDX-License-Identifier: MIT
/*
 * echo-uv.c - an echo server on libuv that hangs up on who is silent for too long
 *
 *	echo-uv PORT [IDLE_MS]
 *
 * What a program with libuv has a uv_timer_t for, a timer of the wheel does here. It is
 * no handle of the loop: it needs no uv_close(), and may be freed when it is not armed.
 */
#include <err.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <twheel/uv.h>

struct connection {
	uv_tcp_t tcp;
	struct twheel_timer idle;
};

static struct twheel *wheel;
static uint64_t idle_ns = 30 * TWHEEL_SEC;

static void forget(uv_handle_t *tcp)
{
	free(TWHEEL_CONTAINER(tcp, struct connection, tcp));
}

/* For any reason, so that the timer may be armed or not. */
static void hang_up(struct connection *c)
{
	twheel_cancel(wheel, &c->idle);
	uv_close((uv_handle_t *)&c->tcp, forget);
}

static void on_idle(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	hang_up(TWHEEL_CONTAINER(t, struct connection, idle));
}

/* One for all, as what was read is echoed at once. */
static void give_buffer(uv_handle_t *tcp, size_t size, uv_buf_t *buffer)
{
	static char room[4096];

	(void)tcp;
	(void)size;
	*buffer = uv_buf_init(room, sizeof(room));
}

static void echo(uv_stream_t *stream, ssize_t nr, const uv_buf_t *buffer)
{
	struct connection *c = TWHEEL_CONTAINER(stream, struct connection, tcp);
	uv_buf_t answer = uv_buf_init(buffer->base, nr > 0 ? nr : 0);

	if (!nr)	/* there was nothing to read after all */
		return;
	/* Who does not read what it gets is hung up on as well. */
	if (nr < 0 || uv_try_write(stream, &answer, 1) != nr ||
	    twheel_arm(wheel, &c->idle, idle_ns, on_idle))
		hang_up(c);
}

static void welcome(uv_stream_t *listener, int status)
{
	struct connection *c = calloc(1, sizeof(*c));

	/* libuv tells of no other connection before this one was accepted. */
	if (!c)
		err(1, "connection");
	uv_tcp_init(listener->loop, &c->tcp);
	if (status || uv_accept(listener, (uv_stream_t *)&c->tcp) ||
	    uv_read_start((uv_stream_t *)&c->tcp, give_buffer, echo) ||
	    twheel_arm(wheel, &c->idle, idle_ns, on_idle))
		hang_up(c);
}

/* 1 to @max, or how this is used */
static unsigned long number(const char *word, unsigned long max)
{
	char *end;
	unsigned long nr = strtoul(word, &end, 10);

	if (*end || !nr || nr > max)
		errx(2, "usage: echo-uv PORT [IDLE_MS]");
	return nr;
}

static void check(int ret, const char *what)
{
	if (ret)
		errx(1, "%s: %s", what, strerror(-ret));
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 };
	uv_loop_t *loop = uv_default_loop();
	uv_tcp_t listener;
	uv_poll_t timers;

	to.sin6_port = htons(number(argc == 2 || argc == 3 ? argv[1] : "", 65535));
	if (argc > 2)
		idle_ns = number(argv[2], 1000000000) * TWHEEL_MSEC;
	signal(SIGPIPE, SIG_IGN);	/* of who hung up: an error is enough */

	check(twheel_open(&wheel, NULL), "wheel");
	check(twheel_uv_start(loop, &timers, wheel), "wheel");

	check(uv_tcp_init(loop, &listener), "socket");
	check(uv_tcp_bind(&listener, (struct sockaddr *)&to, 0), argv[1]);
	check(uv_listen((uv_stream_t *)&listener, SOMAXCONN, welcome), argv[1]);
	return uv_run(loop, UV_RUN_DEFAULT);
}

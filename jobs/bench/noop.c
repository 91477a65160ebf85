// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that is called, does nothing and answers 200: the same for all that are measured, so
 * that what it costs is in each of them.
 *
 *   noop		prints its port, and serves until it is killed
 *
 * The first number in the body of a POST is when that job was due, in us since 1970. GET / has
 * how many there were; GET /late how many, and how late they came, in us: the 50th and the 99th
 * percentile, the greatest and the least. With that it begins anew.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define ROOM	65536

/* struct peer: a connection; "len" bytes of "in" are not answered yet */
struct peer {
	int fd;
	size_t len;
	char in[ROOM];
};

static int64_t *late_us;
static size_t nr_late, room;

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void note(const char *body, size_t len)
{
	int64_t due_us = 0, *more;
	size_t i = 0;

	while (i < len && (body[i] < '0' || body[i] > '9'))
		i++;
	for (; i < len && body[i] >= '0' && body[i] <= '9'; i++)
		due_us = due_us * 10 + body[i] - '0';
	if (nr_late == room) {
		room = room ? 2 * room : 65536;
		more = realloc(late_us, room * sizeof(*late_us));
		if (!more)
			abort();
		late_us = more;
	}
	late_us[nr_late++] = now_us() - due_us;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void tell(char *text, size_t size)
{
	qsort(late_us, nr_late, sizeof(*late_us), compare);
	snprintf(text, size, "%zu %lld %lld %lld %lld\n", nr_late,
		 nr_late ? (long long)late_us[nr_late / 2] : 0,
		 nr_late ? (long long)late_us[nr_late * 99 / 100] : 0,
		 nr_late ? (long long)late_us[nr_late - 1] : 0,
		 nr_late ? (long long)late_us[0] : 0);
	nr_late = 0;
}

static bool answer(int fd, const char *body)
{
	char text[256];
	int len = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
			   strlen(body), body);

	return write(fd, text, len) == len;
}

/* How long the body is, or -1 if it does not say. */
static long length(const char *head)
{
	const char *line = head;

	while ((line = strchr(line, '\n'))) {
		line++;
		if (!strncasecmp(line, "content-length:", 15))
			return strtol(line + 15, NULL, 10);
		if (!strncasecmp(line, "transfer-encoding:", 18))
			return -1;
	}
	return 0;
}

/* Answers the first request if all of it is there; false if the connection is to be closed. */
static bool one(struct peer *p, size_t *used)
{
	char *end = memmem(p->in, p->len, "\r\n\r\n", 4);
	char text[160];
	size_t head;
	long body;

	*used = 0;
	if (!end)
		return p->len < ROOM;
	head = end + 4 - p->in;
	end[2] = 0;	/* for strchr() */
	body = length(p->in);
	end[2] = '\r';
	if (body < 0 || head + body > ROOM)
		return false;
	if (head + body > p->len)
		return true;
	*used = head + body;
	if (!memcmp(p->in, "POST", 4)) {
		note(p->in + head, body);
		return answer(p->fd, "");
	}
	if (!memcmp(p->in, "GET /late ", 10))
		tell(text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%zu\n", nr_late);
	return answer(p->fd, text);
}

static bool serve(struct peer *p)
{
	ssize_t got = read(p->fd, p->in + p->len, ROOM - p->len);
	size_t used;

	if (got <= 0)
		return got < 0 && (errno == EAGAIN || errno == EINTR);
	p->len += got;
	do {
		if (!one(p, &used))
			return false;
		p->len -= used;
		memmove(p->in, p->in + used, p->len);
	} while (used && p->len);
	return true;
}

static void take(int epoll, int listener)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
	struct peer *p;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	p = malloc(sizeof(*p));
	if (!p)
		abort();
	p->fd = fd;
	p->len = 0;
	e.data.ptr = p;
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(0);
	struct epoll_event events[64], e = { .events = EPOLLIN };
	socklen_t len = sizeof(at);
	int i, nr;

	if (listener < 0 || bind(listener, (void *)&at, len) || listen(listener, 1024) ||
	    getsockname(listener, (void *)&at, &len) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e)) {
		perror("noop");
		return 1;
	}
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		nr = epoll_wait(epoll, events, 64, -1);
		for (i = 0; i < nr; i++) {
			struct peer *p = events[i].data.ptr;

			if (!p) {
				take(epoll, listener);
			} else if (!serve(p)) {
				close(p->fd);
				free(p);
			}
		}
	}
}

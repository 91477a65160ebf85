// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "peer.h"

#define MAX_TIMED	64
#define BIG		10000000
#define SETTLE		"POST /settle HTTP/1.1\r\n\r\n"

struct conn {
	int fd;
	struct buf in;
	struct buf out;
	size_t sent;
	unsigned int requests;
	bool ends;		/* when all is sent */
	const char *drip;	/* sent again and again */
	uint64_t at_ms;		/* when to answer, or the next drip */
	bool timed;
};

static struct {
	pthread_mutex_t lock;
	unsigned int requests, connections, cut;
	char *last;
} notes = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int epoll_fd, listen_fd;
static struct sockaddr_in listens = { .sin_family = AF_INET };
static struct conn *timed[MAX_TIMED];

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void add_timed(struct conn *c, uint64_t ms)
{
	int i;

	c->at_ms = now_ms() + ms;
	if (c->timed)
		return;
	for (i = 0; i < MAX_TIMED; i++) {
		if (!timed[i]) {
			timed[i] = c;
			c->timed = true;
			return;
		}
	}
	abort();
}

static void del_timed(struct conn *c)
{
	int i;

	for (i = 0; i < MAX_TIMED; i++)
		if (timed[i] == c)
			timed[i] = NULL;
	c->timed = false;
}

static void conn_end(struct conn *c)
{
	del_timed(c);
	pthread_mutex_lock(&notes.lock);
	notes.cut += c->sent < c->out.len;
	pthread_mutex_unlock(&notes.lock);
	close(c->fd);
	buf_free(&c->in);
	buf_free(&c->out);
	free(c);
}

/* False if the connection is gone. */
static bool conn_send(struct conn *c)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
	ssize_t nr;

	while (c->sent < c->out.len) {
		nr = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
		if (nr < 0 && errno == EAGAIN) {
			event.events |= EPOLLOUT;
			epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
			return true;
		}
		if (nr < 0) {
			conn_end(c);
			return false;
		}
		c->sent += (size_t)nr;
	}
	if (c->ends) {
		conn_end(c);
		return false;
	}
	if (c->out.len > 1000)
		epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
	c->out.len = 0;
	c->sent = 0;
	return true;
}

static void answer(struct conn *c, int status)
{
	static const char *const extra[2] = { "", "Location: /200\r\n" };

	buf_printf(&c->out, "HTTP/1.1 %d x\r\n%sContent-Length: 4\r\n\r\nfine", status,
		   extra[status / 100 == 3]);
}

static void fill(struct conn *c, const char *line)
{
	while (c->out.len < BIG)
		buf_puts(&c->out, line);
}

/* False if it is to be closed at once. */
static bool act(struct conn *c, const char *path, const char *body, size_t len)
{
	if (path[0] >= '1' && path[0] <= '9') {
		answer(c, atoi(path));
	} else if (!strcmp(path, "raw") || !strcmp(path, "rawclose")) {
		buf_add(&c->out, body, len);
		c->ends = !strcmp(path, "rawclose");
	} else if (!strcmp(path, "slow")) {
		add_timed(c, 200);
	} else if (!strcmp(path, "trickle")) {
		buf_puts(&c->out, "HTTP/1.1 200 x\r\nContent-Length: 100000000\r\n\r\n");
		c->drip = "x";
		add_timed(c, 10);
	} else if (!strcmp(path, "trickleheads")) {
		buf_puts(&c->out, "HTTP/1.1 200 x\r\n");
		c->drip = "X-Drip: x\r\n";
		add_timed(c, 10);
	} else if (!strcmp(path, "big")) {
		buf_puts(&c->out, "HTTP/1.1 200 x\r\nContent-Length: 10000000\r\n\r\n");
		fill(c, "0123456789");
	} else if (!strcmp(path, "manyheads")) {
		buf_puts(&c->out, "HTTP/1.1 200 x\r\n");
		fill(c, "X-Many: 0123456789012345678901234567890123456789\r\n");
	} else if (!strcmp(path, "reset")) {
		struct linger linger = { .l_onoff = 1 };

		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		return false;
	} else if (!strcmp(path, "settle") || !strcmp(path, "close") ||
		   (!strcmp(path, "stale") && c->requests > 1)) {
		return false;
	} else if (!strcmp(path, "stale")) {
		answer(c, 200);
	}
	return true;	/* also for what hangs */
}

/* How long the request at the head is; 0 if it is not whole. */
static size_t request_len(const struct conn *c, size_t *head)
{
	char *end = strstr(c->in.data, "\r\n\r\n"), *length;
	size_t len;

	if (!end)
		return 0;
	*head = (size_t)(end - c->in.data) + 4;
	length = strcasestr(c->in.data, "\r\nContent-Length:");
	len = *head + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
	return len <= c->in.len ? len : 0;
}

static void note(const struct conn *c, size_t len)
{
	pthread_mutex_lock(&notes.lock);
	if (!strncmp(c->in.data, SETTLE, strlen(SETTLE))) {
		notes.connections--;
		pthread_mutex_unlock(&notes.lock);
		return;
	}
	notes.requests++;
	free(notes.last);
	notes.last = strndup(c->in.data, len);
	pthread_mutex_unlock(&notes.lock);
}

/* False if the connection is gone. */
static bool requests(struct conn *c)
{
	char path[32];
	size_t len, head;

	while (c->in.len && (len = request_len(c, &head))) {
		c->requests++;
		note(c, len);
		if (sscanf(c->in.data, "POST /%31s", path) != 1)
			path[0] = 0;
		if (!act(c, path, c->in.data + head, len - head)) {
			conn_end(c);
			return false;
		}
		memmove(c->in.data, c->in.data + len, c->in.len - len);
		c->in.len -= len;
		c->in.data[c->in.len] = 0;
	}
	return conn_send(c);
}

static void conn_ready(struct conn *c, uint32_t events)
{
	static char data[65536];
	ssize_t nr;

	if (events & EPOLLIN) {
		nr = recv(c->fd, data, sizeof(data), 0);
		if (nr <= 0) {
			conn_end(c);
			return;
		}
		buf_add(&c->in, data, (size_t)nr);
		if (!requests(c))
			return;
	}
	if (events & EPOLLOUT)
		conn_send(c);
	else if (events & (EPOLLERR | EPOLLHUP))
		conn_end(c);
}

static void conn_new(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct conn *c;
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	c = xcalloc(1, sizeof(*c));
	c->fd = fd;
	event.data.ptr = c;
	pthread_mutex_lock(&notes.lock);
	notes.connections++;
	pthread_mutex_unlock(&notes.lock);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void tick(void)
{
	uint64_t now = now_ms();
	struct conn *c;
	int i;

	for (i = 0; i < MAX_TIMED; i++) {
		c = timed[i];
		if (!c || c->at_ms > now)
			continue;
		if (c->drip) {
			buf_puts(&c->out, c->drip);
			add_timed(c, 10);
		} else {
			del_timed(c);
			answer(c, 200);
		}
		conn_send(c);
	}
}

static void *peer(void *arg)
{
	struct epoll_event event;
	uint64_t last = 0;

	(void)arg;
	for (;;) {
		int nr = epoll_wait(epoll_fd, &event, 1, 10);

		if (nr > 0 && !event.data.ptr)
			conn_new();
		else if (nr > 0)
			conn_ready(event.data.ptr, event.events);
		if (now_ms() - last < 10)
			continue;
		last = now_ms();
		tick();
	}
	return NULL;
}

int peer_start(const char *address)
{
	struct epoll_event event = { .events = EPOLLIN };
	socklen_t len = sizeof(listens);
	pthread_t thread;

	inet_pton(AF_INET, address, &listens.sin_addr);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (epoll_fd < 0 || listen_fd < 0 ||
	    bind(listen_fd, (struct sockaddr *)&listens, sizeof(listens)) ||
	    listen(listen_fd, 4096) ||
	    getsockname(listen_fd, (struct sockaddr *)&listens, &len))
		abort();
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event);
	if (pthread_create(&thread, NULL, peer, NULL))
		abort();
	pthread_detach(thread);
	return ntohs(listens.sin_port);
}

/* What was sent to it before is noted when this returns: connections come in order. */
static void settle(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	if (fd < 0 || connect(fd, (struct sockaddr *)&listens, sizeof(listens)) ||
	    send(fd, SETTLE, strlen(SETTLE), MSG_NOSIGNAL) < 0 || recv(fd, &byte, 1, 0) < 0)
		abort();
	close(fd);
}

void peer_forget(void)
{
	settle();
	pthread_mutex_lock(&notes.lock);
	notes.requests = 0;
	notes.connections = 0;
	notes.cut = 0;
	free(notes.last);
	notes.last = NULL;
	pthread_mutex_unlock(&notes.lock);
}

static unsigned int get(const unsigned int *value)
{
	unsigned int got;

	settle();
	pthread_mutex_lock(&notes.lock);
	got = *value;
	pthread_mutex_unlock(&notes.lock);
	return got;
}

unsigned int peer_requests(void)
{
	return get(&notes.requests);
}

unsigned int peer_connections(void)
{
	return get(&notes.connections);
}

unsigned int peer_cut(void)
{
	return get(&notes.cut);
}

char *peer_last(void)
{
	char *last;

	pthread_mutex_lock(&notes.lock);
	last = xstrdup(notes.last ? notes.last : "");
	pthread_mutex_unlock(&notes.lock);
	return last;
}

// SPDX-License-Identifier: MIT
/*
 * clients.c - clients that time-outs are for
 *
 *	clients KIND PORT NUMBER [PAGE [TIMES]]
 *
 * NUMBER connections of one KIND to 127.0.0.1:PORT, and then how they fared:
 *
 *	idle   ask for / and get it, and are silent from then on
 *	slow   send a header, a byte each 200 ms, without end
 *	body   send a body to /mute, a byte each 250 ms, and are silent after the third
 *	wait   ask for /mute
 *	ask    ask for / so many TIMES, one time after the other
 *
 * "idle" and "ask" want each answer to be status 200 and the file PAGE. When all are
 * connected the line "connected" tells. When the server has hung up on all of them, or has
 * answered all that "ask" or "wait", another line tells
 *
 *	how many fared so
 *	after how many ms, rounded down, the first and the last of them: from when they
 *		connected (slow), sent their last byte (body) or asked last (all others)
 *	the status that all got last; 0 for none; "mixed"
 *	how many answers were not as they should be
 *
 * It waits no longer than a minute. "mute" is a server instead: it listens on the Unix
 * socket that PORT names, and does no more.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MSEC		UINT64_C(1000000)
#define LOOK_EACH_MS	10
#define PATIENCE_NS	(60000 * MSEC)
#define LARGEST_ANSWER	16384

enum kind { IDLE, SLOW, BODY, WAIT, ASK };

static const char * const kinds[] = { "idle", "slow", "body", "wait", "ask" };

static const char * const requests[] = {
	[IDLE] = "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
	[SLOW] = "GET / HTTP/1.1\r\n",
	[BODY] = "POST /mute HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n",
	[WAIT] = "GET /mute HTTP/1.1\r\nHost: test\r\n\r\n",
	[ASK]  = "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
};

static const unsigned int byte_each_ms[ASK + 1] = { [SLOW] = 200, [BODY] = 250 };

struct client {
	int fd;
	int status;
	unsigned int bytes;	/* that were sent one by one */
	unsigned int times;	/* that are still to be asked */
	uint64_t since_ns;
	uint64_t next_ns;	/* when the next byte is sent */
	char answer[LARGEST_ANSWER];
	size_t got;
};

static enum kind kind;
static struct client *clients;
static int epfd;
static unsigned int nr, left, wrong, fared;
static uint64_t first_ns = UINT64_MAX, last_ns;
static char page[LARGEST_ANSWER];
static size_t page_size;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 * MSEC + ts.tv_nsec;
}

/* Ends one of them. Who did not fare as is to be told has only been given up. */
static void end(struct client *c, bool fares)
{
	uint64_t ns = now() - c->since_ns;

	close(c->fd);
	c->fd = -1;
	left--;
	if (!fares)
		return;
	fared++;
	if (ns < first_ns)
		first_ns = ns;
	if (ns > last_ns)
		last_ns = ns;
}

/* What the server has hung up on in the meantime will be seen when it is read. */
static void say(struct client *c, const char *what, size_t size)
{
	if (send(c->fd, what, size, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
		err(1, "send");
}

static void ask(struct client *c)
{
	c->got = 0;
	c->since_ns = now();
	say(c, requests[kind], strlen(requests[kind]));
}

static void start(struct client *c, struct sockaddr_in *to)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };

	c->since_ns = now();
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)to, sizeof(*to)) ||
	    fcntl(c->fd, F_SETFL, O_NONBLOCK) || epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &event))
		err(1, "connection");
	if (kind == SLOW)
		say(c, requests[kind], strlen(requests[kind]));
	else
		ask(c);
	c->next_ns = now() + byte_each_ms[kind] * MSEC;
}

static void send_byte(struct client *c, uint64_t now_ns)
{
	if (c->fd < 0 || now_ns < c->next_ns || (kind == BODY && c->bytes == 3))
		return;
	c->next_ns = now_ns + byte_each_ms[kind] * MSEC;
	c->bytes++;
	if (kind == BODY)
		c->since_ns = now();
	say(c, "x", 1);
}

/* Whether all of an answer is there, which sets the status. */
static bool is_answered(struct client *c)
{
	const char *body, *length;

	c->answer[c->got] = '\0';
	body = strstr(c->answer, "\r\n\r\n");
	if (!body || sscanf(c->answer, "HTTP/1.1 %d", &c->status) != 1)
		return false;
	body += 4;
	length = strstr(c->answer, "Content-Length: ");
	if (!length || length > body)
		errx(1, "there is no length in: %s", c->answer);
	return c->got - (body - c->answer) >= strtoul(length + 16, NULL, 10);
}

static void judge(struct client *c)
{
	const char *body = strstr(c->answer, "\r\n\r\n") + 4;
	size_t size = c->got - (body - c->answer);

	if (kind != WAIT && (c->status != 200 || size != page_size ||
			     memcmp(body, page, size)))
		wrong++;
	c->got = 0;
	if (kind == WAIT || (kind == ASK && !--c->times))
		end(c, true);
	else if (kind == ASK)
		ask(c);
}

static void receive(struct client *c)
{
	ssize_t size = recv(c->fd, c->answer + c->got, sizeof(c->answer) - 1 - c->got, 0);

	if (size < 0 && errno == EAGAIN)
		return;
	if (size <= 0) {
		/* Those that are to be answered should not be hung up on. */
		if (c->got || kind == WAIT || kind == ASK)
			wrong++;
		end(c, kind != WAIT && kind != ASK);
		return;
	}
	c->got += size;
	if (is_answered(c))
		judge(c);
	else if (c->got == sizeof(c->answer) - 1)
		errx(1, "an answer is too long");
}

static void serve_until(uint64_t until_ns)
{
	struct epoll_event events[64];
	uint64_t next_look_ns = 0;
	int i, got;

	while (left && now() < until_ns) {
		got = epoll_wait(epfd, events, 64, LOOK_EACH_MS);
		for (i = 0; i < got; i++)
			receive(events[i].data.ptr);
		if (!byte_each_ms[kind] || now() < next_look_ns)
			continue;
		for (i = 0; i < (int)nr; i++)
			send_byte(&clients[i], now());
		next_look_ns = now() + LOOK_EACH_MS * MSEC;
	}
}

static void tell(void)
{
	char status[16];
	unsigned int i;

	snprintf(status, sizeof(status), "%d", clients[0].status);
	for (i = 1; i < nr; i++)
		if (clients[i].status != clients[0].status)
			strcpy(status, "mixed");
	printf("%u %" PRIu64 " %" PRIu64 " %s %u\n", fared, fared ? first_ns / MSEC : 0,
	       last_ns / MSEC, status, wrong);
}

static int mute(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) || listen(fd, SOMAXCONN))
		err(1, "%s", path);
	for (;;)
		pause();
}

static void read_page(const char *name)
{
	FILE *f = fopen(name, "r");

	if (!f)
		err(1, "%s", name);
	page_size = fread(page, 1, sizeof(page), f);
	fclose(f);
}

static enum kind find_kind(const char *name)
{
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(name, kinds[i]))
			return i;
	errx(2, "what is \"%s\"?", name);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct rlimit files;
	unsigned int i;

	if (argc == 3 && !strcmp(argv[1], "mute"))
		return mute(argv[2]);
	if (argc < 4)
		errx(2, "usage: clients KIND PORT NUMBER [PAGE [TIMES]]");
	kind = find_kind(argv[1]);
	to.sin_port = htons(atoi(argv[2]));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	nr = atoi(argv[3]);
	if (argc > 4)
		read_page(argv[4]);

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	clients = calloc(nr, sizeof(*clients));
	epfd = epoll_create1(0);
	if (!nr || !clients || epfd < 0)
		err(1, "clients");
	left = nr;
	for (i = 0; i < nr; i++) {
		clients[i].times = argc > 5 ? atoi(argv[5]) : 1;
		start(&clients[i], &to);
	}
	puts("connected");
	fflush(stdout);
	serve_until(now() + PATIENCE_NS);
	tell();
	return 0;
}

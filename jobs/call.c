// SPDX-License-Identifier: GPL-2.0
/*
 * Calls by HTTP, with libcurl's multi interface in the loop.
 *
 * A call is on one list at a time: waiting, until its time has come; held, until a lookup of
 * its service's name may begin; active, while libcurl has it; ended, if it ended before that.
 * libcurl's callbacks only take notes: all calls end in pool_timer(), end_timer() or
 * sock_ready(), from the loop.
 *
 * libcurl sends a request again, on another connection, if the one it took had been used
 * before and ended without a byte of an answer. That asks prereq() anew, so it does not
 * happen behind the lease; but the request may have been read. Services that want a call at
 * most once get a connection of its own for each, of which libcurl does not do that.
 *
 * The answer counts when its headers are complete, whatever becomes of its body: the consumer
 * has said what it did.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "node.h"

#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87 is needed: CURLOPT_QUICK_EXIT, CURLOPT_PREREQFUNCTION, CURLOPT_PROTOCOLS_STR"
#endif

/* What is read of an answer. A body that is longer is cut, and its connection is closed. */
#define MAX_BODY	65536
#define MAX_HEADERS	65536
#define MAX_RETRY_MS	(UINT64_C(86400) * 1000)
#define MAX_CONNECT_MS	30000
/*
 * For each call libcurl goes through all connections to its host until one is free, so it has
 * several pools of them: the first that has fewer calls than POOL_CALLS takes the next.
 */
#define POOL_CALLS	512
#define POOL_CONNECTIONS	1024
#define MAX_POOLS	64
/* Handles that are kept for further calls. */
#define MAX_SPARE	256
/*
 * A lookup of a name is a thread of libcurl's, which ends when the resolver does, and a name
 * is only known to others when it was found. Hence so many at a time of services that share a
 * lane, which few do: a zone that does not answer holds up nobody else.
 */
#define NR_LANES	64
#define MAX_LOOKUPS	8
/* How often in one turn libcurl is asked again that wants to be asked again at once. */
#define MAX_ROUNDS	8
/* How many calls end in one turn. */
#define MAX_HARVEST	256

/**
 * struct exchange - a call, as libcurl has it
 * @link:         on one of the lists
 * @curl:         whose it is
 * @pool:         where it is active
 * @call:         what it is for
 * @easy:         libcurl's handle
 * @headers:      of the request; libcurl refers to them
 * @lookup:       counts in @lookups of its lane
 * @told:         why there is no answer stands in call->message
 * @answered:     all headers of an answer have come
 * @header_bytes: of the answer, so far
 * @body_bytes:   of the answer, so far
 * @text:         how long call->message is
 * @error:        of libcurl
 */
struct exchange {
	struct list link;
	struct calls_curl *curl;
	struct pool *pool;
	struct call *call;
	CURL *easy;
	struct curl_slist *headers;
	bool lookup, told, answered;
	size_t header_bytes, body_bytes, text;
	char error[CURL_ERROR_SIZE];
};

/** struct lane - see NR_LANES */
struct lane {
	struct list held;
	unsigned int lookups;
};

/**
 * struct pool - connections and the calls that use them
 * @curl:       whose it is
 * @multi:      libcurl's handle
 * @timer:      for libcurl
 * @inside:     libcurl is at work, and is asked again if it wants that at once
 * @again:      it wants that
 * @harvesting: what ends now is told by harvest(), which is at work
 * @nr_active:  how many calls it has
 */
struct pool {
	struct calls_curl *curl;
	CURLM *multi;
	struct twheel_timer timer;
	bool inside, again, harvesting;
	unsigned int nr_active;
};

/**
 * struct calls_curl - all there is
 * @node:             whose it is
 * @end_timer:        to finish what has ended while nobody could be told
 * @active:           calls that libcurl has
 * @waiting:          calls whose time has not come
 * @ended:            calls that ended before that
 * @spare:            handles without a call
 * @nr_held:          how many calls are held in @lanes
 * @nr_spare:         how many are in @spare
 * @nr_pools:         how many there are; they are made when they are needed
 * @max_pools:        how many the process has descriptors for
 * @pool_connections: how many each may have
 * @pools:            those
 * @lanes:            calls that wait for lookups of others
 */
struct calls_curl {
	struct node *node;
	struct twheel_timer end_timer;
	struct list waiting, active, ended, spare;
	unsigned int nr_held, nr_spare, nr_pools, max_pools;
	long pool_connections;
	struct pool *pools[MAX_POOLS];
	struct lane lanes[NR_LANES];
};

/** struct sock - a descriptor that libcurl waits for */
struct sock {
	struct loop_fd fd;
	struct pool *pool;
};

static struct exchange *to_exchange(struct list *link)
{
	return TWHEEL_CONTAINER(link, struct exchange, link);
}

/* The one at the head of a list that is not empty, which it leaves. */
static struct exchange *take(struct list *head)
{
	struct list *link = head->next;

	head->next = link->next;
	link->next->prev = head;
	link->next = NULL;
	link->prev = NULL;
	return to_exchange(link);
}

static void __attribute__((noreturn)) fatal(const char *what)
{
	log_error("calls-broken what=%s", quoted(what));
	abort();
}

static struct lane *lane_of(struct exchange *x)
{
	return &x->curl->lanes[(uint32_t)x->call->service->id % NR_LANES];
}

static void lookup_ends(struct exchange *x)
{
	if (!x->lookup)
		return;
	x->lookup = false;
	lane_of(x)->lookups--;
}

static void __attribute__((format(printf, 2, 3))) tell(struct exchange *x, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(x->call->message, sizeof(x->call->message), format, args);
	va_end(args);
	x->told = true;
}

/* -------------------------------------------------- where a call may go */

/*
 * Addresses that only an entry allows that is for nothing else: who allows 0.0.0.0/0 does not
 * mean the instance metadata of a cloud, nor what is behind a translator to IPv4.
 */
static const struct config_allow special[] = {
	{ { [10] = 0xff, 0xff, 169, 254 }, 112 },
	{ { [10] = 0xff, 0xff, 0 }, 104 },
	{ { 0xfe, 0x80 }, 10 },
	{ { 0xfd, 0x00, 0x0e, 0xc2 }, 32 },
	{ { 0x00, 0x64, 0xff, 0x9b }, 96 },
	{ { 0x20, 0x02 }, 16 },
	{ { 0 }, 128 },
};

static const struct config_allow loopback[] = {
	{ { [10] = 0xff, 0xff, 127 }, 104 },
	{ { [15] = 1 }, 128 },
};

static bool covers(const struct config_allow *entry, const unsigned char *address)
{
	unsigned int bytes = entry->bits / 8, bits = entry->bits % 8;

	if (memcmp(entry->address, address, bytes))
		return false;
	return !bits || !((entry->address[bytes] ^ address[bytes]) >> (8 - bits));
}

static bool is_allowed(const struct config *config, const unsigned char *address)
{
	const struct config_allow *list = config->nr_allow ? config->allow : loopback;
	unsigned int nr = config->nr_allow ? config->nr_allow : 2, least = 0, i;

	for (i = 0; i < ARRAY_SIZE(special); i++)
		if (covers(&special[i], address))
			least = special[i].bits;
	for (i = 0; i < nr; i++)
		if (list[i].bits >= least && covers(&list[i], address))
			return true;
	return false;
}

/* As it is in struct config_allow. */
static bool address_of(const struct curl_sockaddr *from, unsigned char *address)
{
	if (from->family == AF_INET6) {
		memcpy(address, &((const struct sockaddr_in6 *)&from->addr)->sin6_addr, 16);
		return true;
	}
	if (from->family != AF_INET)
		return false;
	memset(address, 0, 10);
	memset(address + 10, 0xff, 2);
	memcpy(address + 12, &((const struct sockaddr_in *)&from->addr)->sin_addr, 4);
	return true;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
	struct exchange *x = arg;
	unsigned char address[16];
	char text[INET6_ADDRSTRLEN] = "?";

	(void)purpose;
	lookup_ends(x);
	if (!address_of(to, address)) {
		tell(x, "calls cannot go to addresses of family %d", to->family);
		return CURL_SOCKET_BAD;
	}
	if (!is_allowed(x->curl->node->config, address)) {
		inet_ntop(AF_INET6, address, text, sizeof(text));
		tell(x, "calls to %s are not allowed, see \"allow\" in the configuration", text);
		return CURL_SOCKET_BAD;
	}
	return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* ------------------------------------------------------------- the request */

/* The connection stands, and nothing of this request is written yet. */
static int prereq(void *arg, char *to, char *from, int to_port, int from_port)
{
	struct exchange *x = arg;
	struct call *call = x->call;
	struct node *n = x->curl->node;

	(void)to;
	(void)from;
	(void)to_port;
	(void)from_port;
	lookup_ends(x);
	x->told = false;
	call->message[0] = 0;
	if (call->began_ns && call->service->at_most_once) {
		tell(x, "the connection ended before an answer came");
		return CURL_PREREQFUNC_ABORT;
	}
	if (boottime_ns() >= call->deadline_ns) {
		tell(x, "no time was left to send it");
		return CURL_PREREQFUNC_ABORT;
	}
	/* Last, as it is to be asked as late as can be. */
	if (!lease_is_valid(n)) {
		call->withheld = !call->began_ns;
		tell(x, "this node lost its lease");
		return CURL_PREREQFUNC_ABORT;
	}
	if (!call->began_ns) {
		call->began_ns = boottime_ns();
		call->began_us = clock_us(n);
	}
	return CURL_PREREQFUNC_OK;
}

static void __attribute__((format(printf, 2, 3)))
add_header(struct exchange *x, const char *format, ...)
{
	struct curl_slist *list;
	char line[256];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	list = curl_slist_append(x->headers, line);
	if (!list)
		fatal("out of memory");
	x->headers = list;
}

void us_to_text(int64_t us, char *text, size_t size)
{
	int64_t second = us / 1000000, part = us % 1000000;
	char date[32];
	struct tm tm;
	time_t t;

	*text = 0;
	if (part < 0) {
		part += 1000000;
		second--;
	}
	t = (time_t)(second + PG_EPOCH_US / 1000000);
	if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
		return;
	strftime(date, sizeof(date), "-%m-%dT%H:%M:%S", &tm);
	snprintf(text, size, "%04d%s.%06dZ", tm.tm_year + 1900, date, (int)part);
}

static void add_time(struct exchange *x, int64_t us)
{
	char text[40];

	us_to_text(us, text, sizeof(text));
	if (*text)
		add_header(x, "Twheel-At: %s", text);
}

/* A service may not set what the request depends on, nor what consumers trust. */
static bool is_ours(const char *name, size_t len)
{
	static const char *const ours[] = {
		"Connection", "Content-Length", "Expect", "Idempotency-Key", "Keep-Alive", "TE",
		"Trailer", "Transfer-Encoding", "Upgrade",
	};
	size_t i;

	if (len > 7 && !strncasecmp(name, "Twheel-", 7))
		return true;
	for (i = 0; i < ARRAY_SIZE(ours); i++)
		if (strlen(ours[i]) == len && !strncasecmp(name, ours[i], len))
			return true;
	return false;
}

static size_t name_len(const char *header)
{
	size_t len = 0;

	while (header[len] && (isalnum((unsigned char)header[len]) ||
			       strchr("!#$%&'*+-.^_`|~", header[len])))
		len++;
	return len;
}

static bool is_text(const char *value)
{
	for (; *value; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

/* The headers of the service. False after it was told what is wrong with them. */
static bool add_service(struct exchange *x, bool *has_type)
{
	char **header = x->call->service->headers;
	struct curl_slist *list;
	size_t len;

	for (; header && *header; header++) {
		len = name_len(*header);
		if (!len || (*header)[len] != ':' || !is_text(*header)) {
			tell(x, "a header of the service is not valid: it was not sent");
			return false;
		}
		if (is_ours(*header, len)) {
			tell(x, "a service may not set %.*s: it was not sent",
			     (int)(len < 100 ? len : 100), *header);
			return false;
		}
		if (len == 12 && !strncasecmp(*header, "Content-Type", len))
			*has_type = true;
		list = curl_slist_append(x->headers, *header);
		if (!list)
			fatal("out of memory");
		x->headers = list;
	}
	return true;
}

/*
 * The number of an attempt is its fence as well: it grows with each that was begun, whoever
 * owned the job. A consumer that remembers the largest it has seen for a key, and refuses what
 * is less, is safe from a node that stood still between its last look at the lease and the
 * write.
 */
static bool add_headers(struct exchange *x)
{
	const struct call *call = x->call;
	bool has_type = false;

	if (!add_service(x, &has_type))
		return false;
	if (!has_type)
		add_header(x, "Content-Type: application/octet-stream");
	add_header(x, "Expect:");
	add_header(x, "Idempotency-Key: %s", call->idem);
	add_header(x, "Twheel-Job: %lld", (long long)call->id);
	add_header(x, "Twheel-Attempt: %d", (int)call->attempt);
	add_header(x, "Twheel-Fence: %d", (int)call->attempt);
	add_header(x, "Twheel-Token: %s", call->token);
	add_time(x, call->at_us);
	return true;
}

/* -------------------------------------------------------------- the answer */

/* @value is not ended by a NUL. A date is one of the database's clock, as all times are. */
static uint64_t retry_after(const struct node *n, const char *value, size_t len)
{
	char text[64];
	uint64_t ms = 0;
	int64_t now_ms, at_ms;
	time_t at;
	size_t i;

	while (len && (*value == ' ' || *value == '\t')) {
		value++;
		len--;
	}
	while (len && strchr(" \t\r\n", value[len - 1]))
		len--;
	if (!len || len >= sizeof(text))
		return 0;
	memcpy(text, value, len);
	text[len] = 0;
	for (i = 0; text[i] >= '0' && text[i] <= '9'; i++)
		if (ms < MAX_RETRY_MS)
			ms = ms * 10 + (uint64_t)(text[i] - '0') * 1000;
	if (i == len)
		return ms < MAX_RETRY_MS ? ms : MAX_RETRY_MS;
	at = curl_getdate(text, NULL);
	if (at <= 0)
		return 0;
	now_ms = (clock_us(n) + PG_EPOCH_US) / 1000;
	/* So far off that it cannot be told in ms is a day at most anyway. */
	at_ms = at > INT64_MAX / 1000 ? INT64_MAX : (int64_t)at * 1000;
	if (at_ms <= now_ms)
		return 0;
	ms = (uint64_t)(at_ms - now_ms);
	return ms < MAX_RETRY_MS ? ms : MAX_RETRY_MS;
}

/* Also called for those of "100 Continue" and the like, and for trailers. */
static size_t got_header(char *data, size_t size, size_t nr, void *arg)
{
	struct exchange *x = arg;
	struct call *call = x->call;
	size_t len = size * nr;
	long status = 0;

	x->header_bytes += len;
	if (x->header_bytes > MAX_HEADERS) {
		tell(x, "its answer has more than %d bytes of headers", MAX_HEADERS);
		return CURL_WRITEFUNC_ERROR;
	}
	if (x->answered)
		return len;
	if (len >= 5 && !strncasecmp(data, "HTTP/", 5))
		call->retry_after_ms = 0;
	if (len > 12 && !strncasecmp(data, "Retry-After:", 12))
		call->retry_after_ms = retry_after(x->curl->node, data + 12, len - 12);
	if (len <= 2 && (data[0] == '\r' || data[0] == '\n')) {
		curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
		x->answered = status >= 200;
		call->status = x->answered ? (int32_t)status : 0;
	}
	return len;
}

/* Adds what can be shown: white space once, and "?" for a character that is not ASCII. */
static void add_text(struct exchange *x, const char *data, size_t len)
{
	char *text = x->call->message;
	size_t i;

	for (i = 0; i < len && x->text < sizeof(x->call->message) - 1; i++) {
		unsigned char c = (unsigned char)data[i];

		if (c >= 0x80 && c < 0xc0)
			continue;
		if (c <= ' ' || c == 0x7f) {
			if (!x->text || text[x->text - 1] == ' ')
				continue;
			c = ' ';
		}
		text[x->text++] = c < 0x80 ? (char)c : '?';
		text[x->text] = 0;
	}
}

static size_t got_body(char *data, size_t size, size_t nr, void *arg)
{
	struct exchange *x = arg;
	size_t len = size * nr;

	add_text(x, data, len);
	x->body_bytes += len;
	return x->body_bytes <= MAX_BODY ? len : CURL_WRITEFUNC_ERROR;
}

/* ---------------------------------------------------------------- a handle */

static struct exchange *exchange_new(struct calls_curl *curl)
{
	struct exchange *x;

	if (list_is_empty(&curl->spare)) {
		x = xcalloc(1, sizeof(*x));
		x->curl = curl;
		x->easy = curl_easy_init();
		if (!x->easy)
			fatal("out of memory");
		return x;
	}
	x = to_exchange(curl->spare.prev);
	list_del(&x->link);
	curl->nr_spare--;
	return x;
}

static void exchange_free(struct exchange *x)
{
	curl_easy_cleanup(x->easy);
	curl_slist_free_all(x->headers);
	free(x);
}

/*
 * What it had of its call is forgotten; a reset clears libcurl's count of repetitions too. It
 * does not free the buffer of a call that never had a connection: so CURLOPT_BUFFERSIZE cannot
 * be used with handles that are kept.
 */
static void exchange_put(struct exchange *x)
{
	struct calls_curl *curl = x->curl;
	CURL *easy = x->easy;

	if (curl->nr_spare >= MAX_SPARE) {
		exchange_free(x);
		return;
	}
	curl_slist_free_all(x->headers);
	curl_easy_reset(easy);
	memset(x, 0, sizeof(*x));
	x->curl = curl;
	x->easy = easy;
	list_add_tail(&curl->spare, &x->link);
	curl->nr_spare++;
}

#define SET(option, value)	(wrong |= curl_easy_setopt(x->easy, option, value) != CURLE_OK)

/* Where calls may go, and what they may bring along. */
static bool set_bounds(struct exchange *x)
{
	bool wrong = false;

	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PROXY, "");
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET(CURLOPT_OPENSOCKETDATA, x);
	SET(CURLOPT_PREREQFUNCTION, prereq);
	SET(CURLOPT_PREREQDATA, x);
	SET(CURLOPT_HEADERFUNCTION, got_header);
	SET(CURLOPT_HEADERDATA, x);
	SET(CURLOPT_WRITEFUNCTION, got_body);
	SET(CURLOPT_WRITEDATA, x);
	SET(CURLOPT_ERRORBUFFER, x->error);
	SET(CURLOPT_PRIVATE, x);
	SET(CURLOPT_NOSIGNAL, 1L);
	/* Else a call that ends while its name is looked up waits for the resolver. */
	SET(CURLOPT_QUICK_EXIT, 1L);
	return !wrong;
}

static bool set_request(struct exchange *x)
{
	const struct call *call = x->call;
	bool wrong = false;

	SET(CURLOPT_URL, call->service->target);
	SET(CURLOPT_USERAGENT, "twheeld");
	SET(CURLOPT_HTTPHEADER, x->headers);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->payload.len);
	SET(CURLOPT_POSTFIELDS, call->payload.len ? call->payload.data : "");
	/* Without multiplexing HTTP/2 has nothing but another reason to send again. */
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_FRESH_CONNECT, call->service->at_most_once ? 1L : 0L);
	/* A name is looked up again now and then. */
	SET(CURLOPT_MAXLIFETIME_CONN, 300L);
	return !wrong;
}

/* Deadlines are counted by libcurl on CLOCK_MONOTONIC. False if there is no time left. */
static bool set_time(struct exchange *x)
{
	uint64_t now_ns = boottime_ns(), left_ms;
	bool wrong = false;

	if (x->call->deadline_ns <= now_ns)
		return false;
	left_ms = (x->call->deadline_ns - now_ns) / TWHEEL_MSEC;
	if (!left_ms)
		left_ms = 1;	/* as 0 is for ever */
	if (left_ms > INT32_MAX)
		left_ms = INT32_MAX;
	SET(CURLOPT_TIMEOUT_MS, (long)left_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(left_ms < MAX_CONNECT_MS ? left_ms : MAX_CONNECT_MS));
	return !wrong;
}

/* ------------------------------------------------------------------ driving */

/* A call that libcurl has not is over: it is gone when this returns. */
static void end(struct exchange *x)
{
	struct node *n = x->curl->node;
	struct call *call = x->call;

	list_del(&x->link);
	lookup_ends(x);
	exchange_put(x);
	call->easy = NULL;
	n->calls.nr--;
	finish_call(n, call);
}

static void done(struct exchange *x, CURLcode code)
{
	struct call *call = x->call;

	curl_multi_remove_handle(x->pool->multi, x->easy);
	x->pool->nr_active--;
	if (!x->answered) {
		call->status = 0;
		call->retry_after_ms = 0;
		if (!x->told)
			tell(x, "%s", x->error[0] ? x->error : curl_easy_strerror(code));
	}
	end(x);
}

static void end_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void end_soon(struct calls_curl *curl)
{
	loop_arm(&curl->node->loop, &curl->end_timer, 0, end_timer);
}

static void end_later(struct exchange *x)
{
	list_add_tail(&x->curl->ended, &x->link);
	end_soon(x->curl);
}

/*
 * Ends what is over. finish_call() may start others, which a peer that is fast may have answered
 * already: beats must not wait until none is left.
 */
static void harvest(struct pool *p)
{
	struct exchange *x;
	CURLMsg *message;
	int left, nr;

	p->harvesting = true;
	for (nr = 0; nr < MAX_HARVEST; nr++) {
		message = curl_multi_info_read(p->multi, &left);
		if (!message)
			break;
		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &x);
		done(x, message->data.result);
	}
	p->harvesting = false;
	if (nr == MAX_HARVEST)
		end_soon(p->curl);
}

/* Has libcurl do what there is to do. Returns whether something has ended, for harvest(). */
static bool drive(struct pool *p, curl_socket_t fd, int events)
{
	int running = 0, rounds = 0;

	p->inside = true;
	do {
		p->again = false;
		if (curl_multi_socket_action(p->multi, fd, events, &running) != CURLM_OK)
			fatal("curl_multi_socket_action");
		fd = CURL_SOCKET_TIMEOUT;
		events = 0;
	} while (p->again && ++rounds < MAX_ROUNDS);
	p->inside = false;
	if (p->again)
		end_soon(p->curl);
	return (unsigned int)running < p->nr_active;
}

static struct pool *pool_new(struct calls_curl *curl);

/* If all have as many calls as they should, the one that has the fewest. */
static struct pool *pool_for_call(struct calls_curl *curl)
{
	struct pool *least = NULL;
	unsigned int i;

	for (i = 0; i < curl->nr_pools; i++) {
		if (curl->pools[i]->nr_active < POOL_CALLS)
			return curl->pools[i];
		if (!least || curl->pools[i]->nr_active < least->nr_active)
			least = curl->pools[i];
	}
	return curl->nr_pools < curl->max_pools ? pool_new(curl) : least;
}

/* Gives it to libcurl, which sends at once if it has a connection. */
static void begin(struct exchange *x)
{
	struct calls_curl *curl = x->curl;
	struct pool *p;

	if (!set_time(x)) {
		tell(x, "no time was left to send it");
		end_later(x);
		return;
	}
	p = pool_for_call(curl);
	x->pool = p;
	x->lookup = true;
	lane_of(x)->lookups++;
	list_add_tail(&curl->active, &x->link);
	p->nr_active++;
	p->inside = true;
	if (curl_multi_add_handle(p->multi, x->easy) != CURLM_OK)
		fatal("curl_multi_add_handle");
	if (drive(p, CURL_SOCKET_TIMEOUT, 0) && !p->harvesting)
		end_soon(curl);
}

/* Lookups that ended let others begin. */
static void begin_held(struct calls_curl *curl)
{
	struct lane *lane;
	unsigned int i;

	for (i = 0; i < NR_LANES && curl->nr_held; i++) {
		lane = &curl->lanes[i];
		for (; lane->lookups < MAX_LOOKUPS && !list_is_empty(&lane->held); curl->nr_held--)
			begin(take(&lane->held));
	}
}

static void turn(struct pool *p, curl_socket_t fd, int events)
{
	drive(p, fd, events);
	harvest(p);
	begin_held(p->curl);
}

static void end_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct calls_curl *curl = TWHEEL_CONTAINER(t, struct calls_curl, end_timer);
	unsigned int i;
	int nr;

	(void)w;
	(void)missed;
	for (nr = 0; nr < MAX_HARVEST && !list_is_empty(&curl->ended); nr++)
		end(take(&curl->ended));
	if (nr == MAX_HARVEST)
		end_soon(curl);
	for (i = 0; i < curl->nr_pools; i++)
		turn(curl->pools[i], CURL_SOCKET_TIMEOUT, 0);
}

static void pool_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	turn(TWHEEL_CONTAINER(t, struct pool, timer), CURL_SOCKET_TIMEOUT, 0);
}

/* libcurl wants to be asked in @ms; not at all if that is negative. */
static int set_timer(CURLM *multi, long ms, void *arg)
{
	struct pool *p = arg;
	struct loop *loop = &p->curl->node->loop;

	(void)multi;
	if (ms < 0)
		twheel_cancel(loop->wheel, &p->timer);
	else if (!ms && p->inside)
		p->again = true;
	else
		loop_arm(loop, &p->timer, (uint64_t)ms * TWHEEL_MSEC, pool_timer);
	return 0;
}

/* What is at @fd may be gone when libcurl returns. */
static void sock_ready(struct loop_fd *fd, uint32_t events)
{
	struct sock *s = TWHEEL_CONTAINER(fd, struct sock, fd);
	int what = 0;

	if (events & (EPOLLIN | EPOLLHUP))
		what |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (events & EPOLLERR)
		what |= CURL_CSELECT_ERR;
	turn(s->pool, fd->fd, what);
}

/* libcurl says what it waits for, and that it does not any more before it closes. */
static int set_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct pool *p = arg;
	struct sock *s = socket_arg;
	struct loop *loop = &p->curl->node->loop;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (!s)
			return 0;
		loop_set(loop, &s->fd, 0);
		free(s);
		curl_multi_assign(p->multi, fd, NULL);
		return 0;
	}
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->fd.fn = sock_ready;
		s->fd.fd = fd;
		s->pool = p;
		curl_multi_assign(p->multi, fd, s);
	}
	loop_set(loop, &s->fd, (what & CURL_POLL_IN ? EPOLLIN : 0U) |
		 (what & CURL_POLL_OUT ? EPOLLOUT : 0U));
	return 0;
}

#define SET_MULTI(option, value) \
	(wrong |= curl_multi_setopt(p->multi, option, value) != CURLM_OK)

static struct pool *pool_new(struct calls_curl *curl)
{
	struct pool *p = xcalloc(1, sizeof(*p));
	bool wrong = false;

	p->curl = curl;
	p->multi = curl_multi_init();
	if (!p->multi)
		fatal("curl_multi_init");
	SET_MULTI(CURLMOPT_SOCKETFUNCTION, set_socket);
	SET_MULTI(CURLMOPT_SOCKETDATA, p);
	SET_MULTI(CURLMOPT_TIMERFUNCTION, set_timer);
	SET_MULTI(CURLMOPT_TIMERDATA, p);
	SET_MULTI(CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	/* Those in use count too, so fewer would mean that few are kept when it is busy. */
	SET_MULTI(CURLMOPT_MAXCONNECTS, curl->pool_connections);
	SET_MULTI(CURLMOPT_MAX_TOTAL_CONNECTIONS, curl->pool_connections);
	if (wrong)
		fatal("curl_multi_setopt");
	curl->pools[curl->nr_pools++] = p;
	return p;
}

static void pool_free(struct pool *p)
{
	curl_multi_cleanup(p->multi);
	twheel_cancel(p->curl->node->loop.wheel, &p->timer);
	free(p);
}

/* ---------------------------------------------------------------- interface */

/* As many descriptors as the process may have: three quarters of them are for calls. */
static void take_descriptors(struct calls_curl *curl)
{
	struct rlimit limit = { .rlim_cur = 256 };
	rlim_t nr;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) || getrlimit(RLIMIT_NOFILE, &limit))
			log_warn("no-more-descriptors");
	}
	nr = limit.rlim_cur / 4 * 3;
	curl->pool_connections = nr < POOL_CONNECTIONS ? (long)nr : POOL_CONNECTIONS;
	nr /= POOL_CONNECTIONS;
	curl->max_pools = nr < MAX_POOLS ? (unsigned int)nr : MAX_POOLS;
	if (!curl->max_pools)
		curl->max_pools = 1;
}

static void check_curl(void)
{
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		fatal("curl_global_init");
	/* One lookup would stop the loop, and with it the beats. */
	if (!(curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_ASYNCHDNS))
		fatal("this libcurl has no threaded resolver");
}

void calls_open(struct node *n)
{
	struct calls_curl *curl = xcalloc(1, sizeof(*curl));
	unsigned int i;

	check_curl();
	/* OpenSSL writes without MSG_NOSIGNAL. */
	signal(SIGPIPE, SIG_IGN);
	n->calls.nr = 0;
	n->calls.curl = curl;
	curl->node = n;
	take_descriptors(curl);
	list_init(&curl->active);
	list_init(&curl->ended);
	list_init(&curl->waiting);
	list_init(&curl->spare);
	for (i = 0; i < NR_LANES; i++)
		list_init(&curl->lanes[i].held);
}

static void drop(struct exchange *x)
{
	buf_free(&x->call->payload);
	free(x->call);
	exchange_free(x);
}

void calls_close(struct node *n)
{
	struct calls_curl *curl = n->calls.curl;
	struct exchange *x;
	unsigned int i;

	if (!curl)
		return;
	while (!list_is_empty(&curl->active)) {
		x = take(&curl->active);
		curl_multi_remove_handle(x->pool->multi, x->easy);
		drop(x);
	}
	while (!list_is_empty(&curl->waiting)) {
		x = take(&curl->waiting);
		twheel_cancel(n->loop.wheel, &x->call->timer);
		drop(x);
	}
	while (!list_is_empty(&curl->ended))
		drop(take(&curl->ended));
	for (i = 0; i < NR_LANES; i++)
		while (!list_is_empty(&curl->lanes[i].held))
			drop(take(&curl->lanes[i].held));
	while (!list_is_empty(&curl->spare))
		exchange_free(take(&curl->spare));
	for (i = 0; i < curl->nr_pools; i++)
		pool_free(curl->pools[i]);
	curl_global_cleanup();
	twheel_cancel(n->loop.wheel, &curl->end_timer);
	free(curl);
	n->calls.curl = NULL;
	n->calls.nr = 0;
}

static bool is_among(const struct list *head, int64_t id)
{
	const struct list *l;

	for (l = head->next; l != head; l = l->next)
		if (TWHEEL_CONTAINER(l, const struct exchange, link)->call->id == id)
			return true;
	return false;
}

bool call_is_under_way(const struct node *n, int64_t id)
{
	const struct calls_curl *curl = n->calls.curl;
	unsigned int i;

	if (is_among(&curl->active, id) || is_among(&curl->waiting, id) ||
	    is_among(&curl->ended, id))
		return true;
	for (i = 0; i < NR_LANES && curl->nr_held; i++)
		if (is_among(&curl->lanes[i].held, id))
			return true;
	return false;
}

static void begin_or_hold(struct exchange *x)
{
	struct lane *lane = lane_of(x);

	if (lane->lookups < MAX_LOOKUPS) {
		begin(x);
		return;
	}
	list_add_tail(&lane->held, &x->link);
	x->curl->nr_held++;
}

static void begin_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct exchange *x = TWHEEL_CONTAINER(t, struct call, timer)->easy;

	(void)w;
	(void)missed;
	list_del(&x->link);
	begin_or_hold(x);
}

void call_start(struct node *n, struct call *call)
{
	struct calls_curl *curl = n->calls.curl;
	struct exchange *x = exchange_new(curl);
	uint64_t now_ns = boottime_ns();

	n->calls.nr++;
	call->easy = x;
	call->began_us = 0;
	call->began_ns = 0;
	call->status = 0;
	call->retry_after_ms = 0;
	call->withheld = false;
	call->message[0] = 0;
	x->call = call;
	if (!add_headers(x)) {
		end_later(x);
		return;
	}
	if (!set_bounds(x) || !set_request(x)) {
		tell(x, "libcurl does not take the request");
		end_later(x);
		return;
	}
	if (call->begin_ns <= now_ns) {
		begin_or_hold(x);
		return;
	}
	list_add_tail(&curl->waiting, &x->link);
	loop_arm(&n->loop, &call->timer, call->begin_ns - now_ns, begin_time);
}

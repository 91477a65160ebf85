// SPDX-License-Identifier: GPL-2.0
/*
 * Calls against a peer, with what call.c asks of others put in by hand. As TAP. With the
 * arguments "measure NR CONCURRENT HUNG" it says what calls cost instead.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "node.h"
#include "peer.h"

#define NOW_US		INT64_C(823348800123456)	/* 2026-02-02T12:00:00.123456Z */
#define PAYLOAD		"some\0bytes"

static struct node node;
static struct config config;
static int port;

/* What the stubs do and see. */
static struct {
	unsigned int asked;		/* lease_is_valid() */
	unsigned int lost_at;		/* which of these says no, and those after it; 0: none */
	unsigned int wanted;		/* stop the loop when so many calls ended */
	unsigned int ended, answered, started;
	bool starting, within;		/* a call ended within call_start() */
	struct call last;		/* its results only */
	void (*more)(void);
} seen;

static int tests, failures;

static bool ok(bool passed, const char *name)
{
	printf("%sok %d - %s\n", passed ? "" : "not ", ++tests, name);
	if (!passed) {
		failures++;
		printf("# status %d began %d withheld %d asked %u\n", seen.last.status,
		       !!seen.last.began_us, seen.last.withheld, seen.asked);
		printf("# requests %u connections %u message \"%s\"\n", peer_requests(),
		       peer_connections(), seen.last.message);
	}
	fflush(stdout);
	return passed;
}

/* ------------------------------------------------------ what others would do */

bool lease_is_valid(const struct node *n)
{
	(void)n;
	seen.asked++;
	return !seen.lost_at || seen.asked < seen.lost_at;
}

int64_t clock_us(const struct node *n)
{
	(void)n;
	return NOW_US;
}

void finish_call(struct node *n, struct call *call)
{
	if (seen.starting)
		seen.within = true;
	seen.last = *call;
	buf_free(&call->payload);
	free(call);
	seen.ended++;
	seen.answered += seen.last.status == 200;
	if (seen.more)
		seen.more();
	if (seen.ended == seen.wanted)
		loop_stop(&n->loop);
}

/* Names that the tests know; "slow.test" takes its time. */
static struct {
	pthread_mutex_t lock;
	unsigned int begun, done, most;
	useconds_t us;
} lookups = { .lock = PTHREAD_MUTEX_INITIALIZER, .us = 1500000 };

static void slow_lookup(void)
{
	pthread_mutex_lock(&lookups.lock);
	lookups.begun++;
	if (lookups.begun - lookups.done > lookups.most)
		lookups.most = lookups.begun - lookups.done;
	pthread_mutex_unlock(&lookups.lock);
	usleep(lookups.us);
	pthread_mutex_lock(&lookups.lock);
	lookups.done++;
	pthread_mutex_unlock(&lookups.lock);
}

static unsigned int lookups_done(void)
{
	unsigned int done;

	pthread_mutex_lock(&lookups.lock);
	done = lookups.done;
	pthread_mutex_unlock(&lookups.lock);
	return done;
}

/* Instead of the C library's, also for libcurl. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
		struct addrinfo **result)
{
	static int (*real)(const char *name, const char *service, const struct addrinfo *hints,
			   struct addrinfo **result);
	static const struct {
		const char *name, *address;
	} names[] = {
		{ "peer.test", "127.0.0.1" }, { "metadata.test", "169.254.169.254" },
		{ "mapped.test", "::ffff:127.0.0.1" }, { "slow.test", "127.0.0.1" },
		{ "zero.test", "0.0.0.0" },
	};
	size_t i;

	if (!real)
		real = dlsym(RTLD_NEXT, "getaddrinfo");
	for (i = 0; name && i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i].name))
			continue;
		if (!strcmp(name, "slow.test"))
			slow_lookup();
		name = names[i].address;
	}
	return real(name, service, hints, result);
}

/* ------------------------------------------------------------------- helpers */

static struct service *service_at(const char *host, const char *path)
{
	static struct service services[8];
	static char targets[8][200];
	static unsigned int turn;
	struct service *s = &services[turn % 8];
	char *target = targets[turn % 8];

	memset(s, 0, sizeof(*s));
	s->id = (int32_t)turn++;
	snprintf(target, sizeof(targets[0]), "http://%s:%d/%s", host, port, path);
	s->target = target;
	return s;
}

static struct service *service(const char *path)
{
	return service_at("127.0.0.1", path);
}

static void start(struct service *s, const void *payload, size_t len, uint64_t ms)
{
	struct call *call = xcalloc(1, sizeof(*call));

	call->node = &node;
	call->service = s;
	call->id = INT64_C(1234567890123);
	call->attempt = 3;
	call->at_us = NOW_US;
	call->due_us = NOW_US;
	call->deadline_ns = boottime_ns() + ms * TWHEEL_MSEC;
	strcpy(call->idem, "0e0c6a1e-4a5b-4c3d-8e9f-0123456789ab");
	strcpy(call->token, "0123456789abcdef");
	buf_add(&call->payload, payload, len);
	seen.started++;
	seen.starting = true;
	call_start(&node, call);
	seen.starting = false;
}

static void await(unsigned int nr)
{
	seen.wanted = seen.ended + nr;
	node.loop.stopped = 0;
	loop_run(&node.loop);
}

static void forget(void)
{
	bool within = seen.within;
	unsigned int started = seen.started, ended = seen.ended;

	memset(&seen, 0, sizeof(seen));
	seen.within = within;
	seen.started = started;
	seen.ended = ended;
	peer_forget();
}

#define LONG_MS		30000

static const struct call *call_text(struct service *s, const char *payload, uint64_t ms)
{
	start(s, payload, strlen(payload), ms);
	await(1);
	return &seen.last;
}

static const struct call *call(struct service *s)
{
	return call_text(s, "x", LONG_MS);
}

/* What the peer is to answer, verbatim. */
static const struct call *call_raw(const char *answer)
{
	return call_text(service("raw"), answer, LONG_MS);
}

static bool sent(const char *text)
{
	char *last = peer_last();
	bool found = strcasestr(last, text);

	free(last);
	return found;
}

static void reopen(void)
{
	calls_close(&node);
	calls_open(&node);
}

static void allow(const char *address, unsigned int bits)
{
	config.nr_allow = 1;
	inet_pton(AF_INET6, address, config.allow[0].address);
	config.allow[0].bits = bits;
	reopen();
}

static bool refused(const char *host)
{
	forget();
	call(service_at(host, "200"));
	return !seen.last.status && !peer_connections() && !seen.last.began_us &&
		!seen.last.withheld && strstr(seen.last.message, "not allowed");
}

/* --------------------------------------------------------------------- tests */

static void test_request(void)
{
	char *headers[] = { "X-Mine: 1", "Authorization: Bearer abc", NULL };
	char *type[] = { "content-type: text/plain", NULL };
	struct service *s = service("200");
	char *last;

	forget();
	s->headers = headers;
	start(s, PAYLOAD, sizeof(PAYLOAD) - 1, LONG_MS);
	await(1);
	ok(seen.last.status == 200 && !strcmp(seen.last.message, "fine"),
	   "an answer gives its status and its body");
	ok(seen.last.began_us == NOW_US && seen.last.began_ns && !seen.last.withheld,
	   "a call that was sent says when");
	ok(sent("POST /200 HTTP/1.1\r\n"), "it is a POST to the target");
	ok(sent("\r\nContent-Length: 10\r\n"), "a payload with a NUL is sent whole");
	ok(sent("\r\nX-Mine: 1\r\n") && sent("\r\nAuthorization: Bearer abc\r\n"),
	   "headers of the service are sent");
	ok(sent("\r\nContent-Type: application/octet-stream\r\n"), "the body is octets");
	ok(sent("\r\nIdempotency-Key: 0e0c6a1e-4a5b-4c3d-8e9f-0123456789ab\r\n"),
	   "the key of the job is sent");
	ok(sent("\r\nTwheel-Job: 1234567890123\r\n"), "the job is named");
	ok(sent("\r\nTwheel-Attempt: 3\r\n"), "the attempt is told");
	ok(sent("\r\nTwheel-Fence: 3\r\n"), "the fence grows with the attempt");
	ok(sent("\r\nTwheel-Token: 0123456789abcdef\r\n"), "the token is sent");
	ok(sent("\r\nTwheel-At: 2026-02-02T12:00:00.123456Z\r\n"),
	   "when the job was to be done is told to the microsecond");

	s = service("200");
	s->headers = type;
	call(s);
	last = peer_last();
	ok(strstr(last, "\r\ncontent-type: text/plain\r\n") &&
	   !strstr(last, "octet-stream"), "a service may set the type of the body");
	free(last);
	call_text(service("200"), "", LONG_MS);
	ok(seen.last.status == 200 && sent("\r\nContent-Length: 0\r\n"),
	   "an empty payload is sent as an empty body");
}

static void test_large(void)
{
	/* One more than there can be, as libcurl begins to say Expect there. */
	size_t len = MAX_PAYLOAD + 1;
	char *payload = xcalloc(1, len);

	memset(payload, 'p', len);
	forget();
	start(service("200"), payload, len, LONG_MS);
	await(1);
	ok(seen.last.status == 200 && sent("\r\nContent-Length: 1048577\r\n"),
	   "a payload of 1 MB is sent");
	ok(!sent("\r\nExpect:"), "a large payload does not wait for 100-continue");
	free(payload);
}

static bool header_refused(const char *header)
{
	char *headers[] = { (char *)header, NULL };
	struct service *s = service("200");

	forget();
	s->headers = headers;
	call(s);
	return !seen.last.status && !seen.last.began_us && !seen.last.withheld &&
		!peer_connections() && seen.last.message[0];
}

static void test_headers(void)
{
	ok(header_refused("X-A: 1\r\nX-B: 2"), "a header with CR and LF is refused unsent");
	ok(header_refused("X-A: 1\nX-B: 2"), "a header with a bare LF is refused unsent");
	ok(header_refused("X-A: 1\rX-B: 2"), "a header with a bare CR is refused unsent");
	ok(header_refused("X A: 1"), "a header whose name has a blank is refused unsent");
	ok(header_refused("X-A"), "a header without a colon is refused unsent");
	ok(header_refused("twheel-fence: 99"), "a service cannot set the fence");
	ok(header_refused("Idempotency-Key: x"), "a service cannot set the key");
	ok(header_refused("Content-Length: 5"), "a service cannot set the length");
	ok(header_refused("Transfer-Encoding: chunked"), "a service cannot set the encoding");
}

static void test_answers(void)
{
	forget();
	ok(call(service("500"))->status == 500, "an answer of 500 gives 500");
	ok(call(service("404"))->status == 404, "an answer of 404 gives 404");
	ok(call(service("202"))->status == 202, "an answer of 202 gives 202");
	forget();
	ok(call(service("302"))->status == 302 && peer_requests() == 1,
	   "a redirect is not followed");
	forget();
	ok(call_raw("HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm=\"x\"\r\n"
		    "Content-Length: 0\r\n\r\n")->status == 401 && peer_requests() == 1,
	   "a wish for a password is not followed");
	ok(call(service("slow"))->status == 200, "an answer that takes a while is waited for");
	ok(call_raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 x\r\nContent-Length: 0\r\n\r\n")
	   ->status == 201, "an interim answer is not the answer");
	ok(call_text(service("rawclose"), "HTTP/1.1 100 Continue\r\n\r\n", LONG_MS)->status == 0,
	   "an interim answer alone is no answer");
	call_text(service("rawclose"), "SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n", LONG_MS);
	ok(!seen.last.status && seen.last.began_us && seen.last.message[0], "garbage is no answer");
	ok(call_text(service("rawclose"), "HTTP/1.1 200 x\r\nContent-Le", LONG_MS)->status == 0,
	   "an answer that ends within its headers is none");
	ok(call_text(service("rawclose"), "HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nab",
		     LONG_MS)->status == 200, "an answer that ends within its body counts");
	call_raw("HTTP/1.1 503 x\r\nContent-Length: 22\r\n\r\n"
		 "\x01out\r\n\r\n\tof \xc3\xa4pples!!!");
	ok(!strcmp(seen.last.message, "out of ?pples!!!"),
	   "of a body what can be printed is kept");
}

static void test_bounds(void)
{
	char body[2000], answer[2200];

	forget();
	ok(call(service("big"))->status == 200, "an answer of 10 MB counts");
	call(service("200"));
	ok(peer_cut() == 1, "an answer of 10 MB is not read to its end");
	forget();
	ok(!call(service("manyheads"))->status && strstr(seen.last.message, "65536"),
	   "headers without end are no answer");
	call(service("200"));
	ok(peer_cut() == 1, "headers without end are not read to their end");
	memset(body, 'b', sizeof(body));
	snprintf(answer, sizeof(answer), "HTTP/1.1 500 x\r\nContent-Length: 2000\r\n\r\n%.2000s",
		 body);
	call_raw(answer);
	ok(strlen(seen.last.message) == 255 && strspn(seen.last.message, "b") == 255,
	   "255 characters of a body are kept");
}

static void test_failures(void)
{
	int real = port;

	forget();
	call(service("close"));
	ok(!seen.last.status && seen.last.began_us && seen.last.message[0],
	   "a connection that is closed early is told");
	call(service("reset"));
	ok(!seen.last.status && seen.last.began_us && seen.last.message[0],
	   "a connection that is reset is told");
	port = 1;
	call(service("200"));
	ok(!seen.last.status && !seen.last.began_us && !seen.last.withheld && seen.last.message[0],
	   "a peer that does not listen is told, and nothing began");
	port = real;
	call(service_at("no host", "200"));
	ok(!seen.last.status && !seen.last.began_us && seen.last.message[0],
	   "a target that is no URL is told");
	ok(call(service("200"))->status == 200, "a call after one that failed is as any other");
}

static void test_deadline(void)
{
	uint64_t began = boottime_ns();

	forget();
	call_text(service("hang"), "x", 300);
	ok(!seen.last.status && seen.last.began_us && seen.last.message[0],
	   "a call that hangs is given up");
	ok(boottime_ns() - began >= 290 * TWHEEL_MSEC, "it is not given up before its deadline");
	ok(!call_text(service("trickleheads"), "x", 300)->status,
	   "headers that trickle do not push the deadline");
	ok(call_text(service("trickle"), "x", 300)->status == 200,
	   "the status of a body that trickles counts at the deadline");
	forget();
	call_text(service("200"), "x", 0);
	ok(!seen.last.status && !seen.last.began_us && !peer_connections() &&
	   seen.last.message[0], "a call without time left is not sent");
}

static uint64_t retry(const char *value)
{
	char answer[200];

	snprintf(answer, sizeof(answer),
		 "HTTP/1.1 503 x\r\n%s\r\nContent-Length: 0\r\n\r\n", value);
	return call_raw(answer)->retry_after_ms;
}

static void test_retry_after(void)
{
	forget();
	ok(retry("Retry-After: 7") == 7000, "Retry-After has seconds");
	ok(retry("retry-after:\t 7 ") == 7000, "Retry-After may be written in other ways");
	ok(retry("Retry-After: Mon, 02 Feb 2026 12:01:00 GMT") == 59877,
	   "a date in Retry-After is one of the database's clock");
	ok(retry("Retry-After: Mon, 02 Feb 2026 11:00:00 GMT") == 0,
	   "a date that has passed is no delay");
	ok(retry("Retry-After: 99999999999999999999999999") == 86400000,
	   "Retry-After is a day at most");
	ok(retry("Retry-After: Mon, 02 Feb 2036 11:00:00 GMT") == 86400000,
	   "so is a date");
	ok(retry("Retry-After: -5") == 0 && retry("Retry-After: soon") == 0 &&
	   retry("Retry-After:") == 0, "what is neither is not followed");
	ok(retry("X: y") == 0, "without Retry-After there is none");
}

static void test_lease(void)
{
	struct service *s = service("200");

	forget();
	seen.lost_at = 1;
	reopen();
	call(s);
	ok(!seen.last.status && !seen.last.began_us && seen.last.withheld,
	   "without a lease a call is withheld");
	usleep(50000);
	ok(peer_requests() == 0, "a call that is withheld is not sent");
	ok(seen.asked == 1, "the lease is asked once, when the connection stands");

	forget();
	call(s);
	seen.lost_at = 2;
	call(s);
	ok(seen.last.withheld && peer_requests() == 1,
	   "a connection that stood before does not go round the lease");
}

static void test_stale(void)
{
	struct service *s = service("stale");

	reopen();
	forget();
	call(s);
	call(s);
	ok(seen.last.status == 200 && peer_connections() == 2 && peer_requests() == 3,
	   "a connection that ends when it is used again is replaced");
	ok(seen.asked == 3, "the lease is asked again before a request is repeated");

	reopen();
	forget();
	call(s);
	seen.lost_at = 3;
	call(s);
	ok(!seen.last.status && peer_requests() == 2,
	   "a request is not repeated behind a lost lease");
	ok(seen.last.began_us && !seen.last.withheld,
	   "a request that was not repeated counts as sent");

	reopen();
	forget();
	call(s);
	s->at_most_once = true;
	call(s);
	ok(seen.last.status == 200 && peer_connections() == 2 && peer_requests() == 2,
	   "a call at most once has a connection of its own");
	forget();
	s->target = strdup(s->target);
	memcpy(strstr(s->target, "stale"), "close", 5);
	call(s);
	ok(!seen.last.status && seen.last.began_us && peer_requests() == 1,
	   "a call at most once is not repeated");
	free(s->target);
}

static void test_connections(void)
{
	int i;

	reopen();
	forget();
	for (i = 0; i < 10; i++)
		call(service("200"));
	ok(peer_requests() == 10 && peer_connections() == 1, "a connection is used again");
	forget();
	call_raw("HTTP/1.1 200 x\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n");
	call(service("200"));
	ok(!sent("\r\nCookie:"), "cookies are not kept");
}

static void test_addresses(void)
{
	config.nr_allow = 0;
	reopen();
	forget();
	ok(call(service_at("peer.test", "200"))->status == 200,
	   "without a list calls go to loopback");
	ok(refused("metadata.test"), "without a list calls go nowhere else");
	ok(refused("zero.test"), "the address 0.0.0.0 is not loopback");
	allow("::ffff:10.0.0.0", 104);
	ok(refused("127.0.0.1"), "what is not in the list is refused");
	ok(refused("peer.test"), "a name does not go round the list");
	ok(refused("[::ffff:127.0.0.1]"), "an address of IPv4 in IPv6 does not go round the list");
	ok(refused("mapped.test"), "nor does a name of such an address");
	ok(refused("2130706433"), "nor does an address that is written as a number");
	allow("::ffff:127.0.0.0", 104);
	forget();
	ok(call(service("200"))->status == 200, "what is in the list is allowed");
	ok(call(service_at("[::ffff:127.0.0.1]", "200"))->status == 200,
	   "an address of IPv4 in IPv6 is allowed as that of IPv4 is");
	allow("::ffff:127.0.0.1", 121);
	ok(refused("127.0.0.128"), "bits that do not end a byte are counted");
	allow("::", 0);
	ok(refused("metadata.test"), "to allow everything does not allow link-local addresses");
	ok(refused("[64:ff9b::a9fe:a9fe]"), "nor those behind a translator");
	forget();
	ok(call(service("200"))->status == 200, "to allow everything allows loopback");
	config.nr_allow = 0;
	reopen();
}

static void test_protocols(void)
{
	struct service *s = service("200");

	forget();
	s->target = "file:///etc/passwd";
	call(s);
	ok(!seen.last.status && !strstr(seen.last.message, "root"), "files are not read");
	s->target = "gopher://127.0.0.1/";
	ok(!call(s)->status && strstr(seen.last.message, "rotocol"),
	   "protocols other than HTTP are refused");
	s->target = "http://127.0.0.1/\r\nX-A: 1";
	ok(!call(s)->status && !seen.last.began_us, "a target with CR and LF is refused unsent");
}

static void test_environment(void)
{
	char home[] = "/tmp/twheel-call-XXXXXX", path[64];
	FILE *netrc;

	forget();
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("all_proxy", "http://127.0.0.1:1", 1);
	ok(call(service("200"))->status == 200, "a proxy of the environment is not used");
	if (!mkdtemp(home))
		abort();
	setenv("HOME", home, 1);
	snprintf(path, sizeof(path), "%s/.netrc", home);
	netrc = fopen(path, "w");
	fputs("default login a password b\n", netrc);
	fclose(netrc);
	call(service("200"));
	ok(!sent("\r\nAuthorization:"), "passwords of .netrc are not used");
	unlink(path);
	rmdir(home);
	unsetenv("http_proxy");
	unsetenv("all_proxy");
}

static void wait_lookups(unsigned int nr)
{
	while (lookups_done() < nr)
		usleep(10000);
}

static void test_lookups(void)
{
	struct service *s = service_at("slow.test", "200");
	int i;

	reopen();
	forget();
	call_text(s, "x", 100);
	ok(!seen.last.status && !seen.last.began_us && !lookups_done(),
	   "a name that is looked up for long does not hold up the loop");
	wait_lookups(1);
	reopen();
	lookups.most = 0;
	lookups.us = 100000;
	for (i = 0; i < 50; i++)
		start(s, "x", 1, LONG_MS);
	await(50);
	ok(seen.answered == 50, "calls that wait for a name are sent when it is known");
	ok(lookups.most <= 8, "few lookups of a service's name are under way at a time");
	reopen();
	lookups.us = 500000;
	for (i = 0; i < 50; i++)
		start(s, "x", 1, LONG_MS);
	i = (int)lookups_done();
	start(service("200"), "y", 1, LONG_MS);
	await(1);
	ok((int)lookups_done() == i && seen.last.status == 200,
	   "calls of another service do not wait for that name");
	calls_close(&node);
	calls_open(&node);
	wait_lookups(lookups.begun);
}

static void test_many(void)
{
	struct service *s = service("hang");
	int i;

	if (node.calls.nr)
		abort();
	reopen();
	forget();
	for (i = 0; i < 3000; i++)
		start(s, "x", 1, LONG_MS * 10);
	ok(node.calls.nr == 3000, "calls that are under way are counted");
	i = 0;
	while (peer_requests() < 3000 && i++ < 1000) {
		start(service("slow"), "x", 1, LONG_MS);
		await(1);
	}
	ok(peer_requests() >= 3000, "thousands of calls can be under way");
	seen.ended = 0;
	calls_close(&node);
	ok(!seen.ended && !node.calls.nr, "to close ends all of them, and tells nobody");
	calls_open(&node);
}

static struct service *next_service;
static unsigned int nr_next;

static void start_next(void)
{
	if (!nr_next)
		return;
	nr_next--;
	start(next_service, "x", 1, LONG_MS);
}

static void test_each(void)
{
	unsigned int ended;

	forget();
	ended = seen.ended;
	next_service = service("200");
	nr_next = 500;
	seen.more = start_next;
	start(next_service, "x", 1, LONG_MS);
	await(501);
	ok(seen.answered == 501, "a call may be started when another ends");
	seen.more = NULL;
	start(service("200"), "x", 1, LONG_MS);
	await(1);
	ok(seen.ended - ended == 502, "each call ends once");
	ok(!node.calls.nr, "when all have ended none is under way");
	ok(!seen.within, "no call ends within its start");
}

/* ------------------------------------------------------------------- measure */

static double cpu_us(void)
{
	struct rusage r;

	getrusage(RUSAGE_THREAD, &r);
	return 1e6 * (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
		(double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* With @hung others that are not answered. */
static void measure(unsigned int nr, unsigned int concurrent, unsigned int hung)
{
	double cpu, ns;
	unsigned int i;

	next_service = service("hang");
	for (i = 0; i < hung; i++)
		start(next_service, "x", 1, LONG_MS * 10);
	while (peer_requests() < hung && node.calls.nr == hung) {
		start(service("slow"), "x", 1, LONG_MS);
		await(1);
	}
	forget();
	cpu = cpu_us();

	next_service = service("200");
	ns = (double)boottime_ns();
	nr_next = nr - concurrent;
	seen.more = start_next;
	for (i = 0; i < concurrent; i++)
		start(next_service, "x", 1, LONG_MS * 10);
	await(nr);
	ns = (double)boottime_ns() - ns;
	printf("%u calls, %u at a time besides %u that hang, %u answered: ", nr, concurrent, hung,
	       seen.answered);
	printf("%.0f/s, %.1f us of CPU each, %u new connections\n", nr * 1e9 / ns,
	       (cpu_us() - cpu) / nr, peer_connections());
}

int main(int argc, char **argv)
{
	alarm(300);
	port = peer_start("127.0.0.1");
	if (loop_open(&node.loop, TWHEEL_LOCAL, 0))
		return 1;
	node.config = &config;
	calls_open(&node);
	if (argc == 5 && !strcmp(argv[1], "measure")) {
		measure((unsigned int)atoi(argv[2]), (unsigned int)atoi(argv[3]),
			(unsigned int)atoi(argv[4]));
		return 0;
	}
	test_request();
	test_large();
	test_headers();
	test_answers();
	test_bounds();
	test_failures();
	test_deadline();
	test_retry_after();
	test_lease();
	test_stale();
	test_connections();
	test_addresses();
	test_protocols();
	test_environment();
	test_lookups();
	test_each();
	test_many();
	printf("1..%d\n", tests);
	calls_close(&node);
	loop_close(&node.loop);
	return failures != 0;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Hand-over to RabbitMQ, with publisher confirms: the loop's side. broker.c: the thread's.
 *
 * The loop never waits for the thread: it puts messages on a queue, and gets them back when it is
 * known what came of them. A call ends by its deadline in the loop, whatever the thread is blocked
 * in; the thread then keeps the message until the broker has told about it, or the connection is
 * lost.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "broker.h"

void amqp_message_free(struct message *m)
{
	buf_free(&m->payload);
	buf_free(&m->texts);
	free(m->exchange);
	free(m->name);
	free(m);
}

void amqp_wake(int fd)
{
	const uint64_t one = 1;

	/* It fails only if it is awake for long. */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void amqp_calm(int fd)
{
	uint64_t nr;

	while (read(fd, &nr, sizeof(nr)) < 0 && errno == EINTR)
		;
}

static void end_call(struct node *n, struct call *call, uint64_t began_ns)
{
	char *c;

	/* It is recorded, and a broker's text may have been cut within a character of UTF-8. */
	for (c = call->message; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	list_del(&call->link);
	twheel_cancel(n->loop.wheel, &call->timer);
	n->calls.nr--;
	call->easy = NULL;
	if (began_ns) {
		call->began_ns = began_ns;
		call->began_us = clock_us(n) - (int64_t)(boottime_ns() - began_ns) / 1000;
	}
	finish_call(n, call);
}

static void count(struct metrics *m, enum amqp_result result)
{
	m->amqp_confirmed += result == CONFIRMED;
	m->amqp_refused += result == REFUSED;
	m->amqp_unroutable += result == UNROUTABLE;
}

static void message_over(struct node *n, struct message *m)
{
	struct call *call = m->call;

	count(&n->metrics, m->result);
	call->withheld = m->result == WITHHELD;
	call->confirmed = m->result == CONFIRMED;
	snprintf(call->message, sizeof(call->message), "%s", m->why);
	end_call(n, call, m->began_ns);
	amqp_message_free(m);
}

static void log_state(struct node *n, enum amqp_state state, const char *why)
{
	if (state == AMQP_UP)
		log_note("amqp-up%s%s", *why ? " host=" : "", *why ? quoted(why) : "");
	else if (state == AMQP_BLOCKED)
		log_warn("amqp-blocked why=%s", quoted(why));
	else
		log_warn("amqp-down why=%s", quoted(why));
	n->metrics.amqp_connects += state == AMQP_UP && *why;
}

static void over_ready(struct loop_fd *fd, uint32_t events)
{
	struct amqp *a = TWHEEL_CONTAINER(fd, struct amqp, over_fd);
	enum amqp_state state;
	struct message *m;
	char why[200];
	bool told;

	(void)events;
	amqp_calm(fd->fd);
	pthread_mutex_lock(&a->lock);
	told = a->told;
	a->told = true;
	state = a->state;
	memcpy(why, a->why, sizeof(why));
	pthread_mutex_unlock(&a->lock);
	if (!told)
		log_state(a->node, state, why);
	for (;;) {
		pthread_mutex_lock(&a->lock);
		m = list_is_empty(&a->over) ? NULL : to_message(a->over.next);
		if (m)
			list_del(&m->link);
		pthread_mutex_unlock(&a->lock);
		if (!m)
			return;
		message_over(a->node, m);
	}
}

static void give_up(struct amqp *a, struct call *call, bool withhold)
{
	struct message *m = call->easy;
	uint64_t began_ns;
	bool queued;

	pthread_mutex_lock(&a->lock);
	if (m->over) {
		/* over_ready() will be called for it. */
		pthread_mutex_unlock(&a->lock);
		return;
	}
	queued = m->queued;
	if (queued)
		list_del(&m->link);
	m->call = NULL;
	began_ns = m->began_ns;
	if (began_ns)
		snprintf(call->message, sizeof(call->message), "no confirm in time");
	else
		snprintf(call->message, sizeof(call->message), "no time was left to send it%s%s",
			 a->state == AMQP_UP || !*a->why ? "" : ": ",
			 a->state == AMQP_UP ? "" : a->why);
	pthread_mutex_unlock(&a->lock);
	call->withheld = withhold;
	if (queued)
		amqp_message_free(m);
	end_call(a->node, call, began_ns);
}

static void deadline_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct call *call = TWHEEL_CONTAINER(t, struct call, timer);

	(void)w;
	(void)missed;
	give_up(call->node->amqp, call, false);
}

static void begin_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct call *call = TWHEEL_CONTAINER(t, struct call, timer);
	struct amqp *a = call->node->amqp;
	struct message *m = call->easy;
	uint64_t now_ns = boottime_ns();
	bool first;

	(void)w;
	(void)missed;
	if (!a->running) {
		snprintf(call->message, sizeof(call->message),
			 "this node has no \"amqp\" in its configuration");
		end_call(a->node, call, 0);
		amqp_message_free(m);
		return;
	}
	pthread_mutex_lock(&a->lock);
	first = list_is_empty(&a->queue);
	m->queued = true;
	list_add_tail(&a->queue, &m->link);
	pthread_mutex_unlock(&a->lock);
	if (first)
		amqp_wake(a->wake_fd);
	loop_arm(&a->node->loop, &call->timer,
		 call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0, deadline_time);
}

static void add_header(struct message *m, const char *name, amqp_field_value_t value)
{
	if (m->nr < MAX_HEADERS)
		m->headers[m->nr++] = (amqp_table_entry_t){ amqp_text(name), value };
}

static void add_text(struct message *m, const char *name, const char *text)
{
	add_header(m, name, (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_text(text) });
}

static void add_number(struct message *m, const char *name, int64_t number)
{
	add_header(m, name, (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_I64, .value.i64 = number });
}

/* Texts that headers refer to are in one buffer: they are added when it does not move any more. */
static void add_headers(struct message *m, const struct call *call)
{
	char **header = call->service->headers, *text, *value;
	char at[32];

	for (; header && *header; header++)
		buf_add(&m->texts, *header, strlen(*header) + 1);
	us_to_text(call->at_us, at, sizeof(at));
	buf_add(&m->texts, at, strlen(at) + 1);
	m->type = "application/octet-stream";
	add_number(m, "twheel-job", call->id);
	add_number(m, "twheel-attempt", call->attempt);
	add_number(m, "twheel-fence", call->attempt);
	text = m->texts.data;
	for (header = call->service->headers; header && *header; header++) {
		value = strchr(text, ':');
		*value = 0;
		value += 2;
		if (strcasecmp(text, "Content-Type"))
			add_text(m, text, value);
		else if (strlen(value) < 256)
			m->type = value;
		text = value + strlen(value) + 1;
	}
	if (*at)
		add_text(m, "twheel-at", text);
}

static struct message *message_new(struct call *call)
{
	struct message *m = xcalloc(1, sizeof(*m));
	char *slash;

	m->call = call;
	m->service = call->service->id;
	m->deadline_ns = call->deadline_ns;
	m->exchange = xstrdup(call->service->target);
	slash = strchr(m->exchange, '/');
	if (slash)
		*slash = 0;
	m->key = slash ? slash + 1 : m->exchange + strlen(m->exchange);
	m->name = xstrdup(call->service->name);
	m->at = (uint64_t)((call->at_us + PG_EPOCH_US) / 1000000);
	memcpy(m->id, call->idem, sizeof(m->id));
	add_headers(m, call);
	m->payload = call->payload;
	call->payload = (struct buf){};
	return m;
}

void amqp_start(struct node *n, struct call *call)
{
	uint64_t now_ns = boottime_ns();

	n->calls.nr++;
	call->easy = message_new(call);
	list_add_tail(&n->amqp->active, &call->link);
	loop_arm(&n->loop, &call->timer, call->begin_ns > now_ns ? call->begin_ns - now_ns : 0,
		 begin_time);
}

bool amqp_is_under_way(const struct node *n, int64_t id)
{
	const struct list *head = &n->amqp->active, *l;

	for (l = head->next; l != head; l = l->next)
		if (TWHEEL_CONTAINER(l, const struct call, link)->id == id)
			return true;
	return false;
}

struct amqp_view amqp_look(struct node *n)
{
	struct amqp *a = n->amqp;
	struct amqp_view v = { .used = a->running };
	struct list *l;

	pthread_mutex_lock(&a->lock);
	v.state = a->state;
	for (l = a->queue.next; l != &a->queue; l = l->next)
		v.nr_queued++;
	pthread_mutex_unlock(&a->lock);
	return v;
}

void amqp_drain(struct node *n)
{
	struct amqp *a = n->amqp;
	struct list *l, *next;
	struct message *m;
	bool queued;

	if (amqp_look(n).state == AMQP_UP)
		return;
	for (l = a->active.next; l != &a->active; l = next) {
		next = l->next;
		m = TWHEEL_CONTAINER(l, struct call, link)->easy;
		pthread_mutex_lock(&a->lock);
		queued = m->queued;
		pthread_mutex_unlock(&a->lock);
		if (queued)
			give_up(a, m->call, true);
	}
}

void amqp_open(struct node *n)
{
	struct amqp *a = xcalloc(1, sizeof(*a));

	n->amqp = a;
	a->node = n;
	a->fd = -1;
	list_init(&a->active);
	list_init(&a->queue);
	list_init(&a->over);
	pthread_mutex_init(&a->lock, NULL);
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	a->over_fd.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	a->over_fd.fn = over_ready;
	if (a->wake_fd < 0 || a->over_fd.fd < 0)
		abort();
	loop_set(&n->loop, &a->over_fd, EPOLLIN);
	if (n->config->nr_amqp && pthread_create(&a->thread, NULL, broker_run, a))
		abort();
	a->running = n->config->nr_amqp;
}

/* Whether it has ended by then. What it waits for may be a resolver, which has all time. */
static bool thread_ends(struct amqp *a, uint64_t ms)
{
	uint64_t end_ns;
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end_ns = (uint64_t)end.tv_sec * TWHEEL_SEC + (uint64_t)end.tv_nsec + ms * TWHEEL_MSEC;
	end.tv_sec = (time_t)(end_ns / TWHEEL_SEC);
	end.tv_nsec = (long)(end_ns % TWHEEL_SEC);
	return !pthread_clockjoin_np(a->thread, NULL, CLOCK_MONOTONIC, &end);
}

static bool stop_thread(struct amqp *a)
{
	if (!a->running)
		return true;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_mutex_unlock(&a->lock);
	amqp_wake(a->wake_fd);
	if (thread_ends(a, 200))
		return true;
	pthread_mutex_lock(&a->lock);
	if (a->fd >= 0)
		shutdown(a->fd, SHUT_RDWR);
	pthread_mutex_unlock(&a->lock);
	return thread_ends(a, CONNECT_S * 1000);
}

static void free_messages(struct list *head)
{
	struct list *l, *next;

	for (l = head->next; l != head; l = next) {
		next = l->next;
		amqp_message_free(to_message(l));
	}
}

void amqp_close(struct node *n)
{
	struct amqp *a = n->amqp;
	bool has_ended = stop_thread(a);
	struct message *m;
	struct call *call;

	loop_set(&n->loop, &a->over_fd, 0);
	while (!list_is_empty(&a->active)) {
		call = TWHEEL_CONTAINER(a->active.next, struct call, link);
		list_del(&call->link);
		twheel_cancel(n->loop.wheel, &call->timer);
		m = call->easy;
		pthread_mutex_lock(&a->lock);
		if (!m->queued && !m->over && has_ended)
			amqp_message_free(m);
		else
			m->call = NULL;
		pthread_mutex_unlock(&a->lock);
		free(call);
	}
	n->amqp = NULL;
	if (!has_ended) {
		log_warn("amqp-hangs");
		return;
	}
	free_messages(&a->queue);
	free_messages(&a->over);
	close(a->wake_fd);
	close(a->over_fd.fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

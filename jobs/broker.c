// SPDX-License-Identifier: GPL-2.0
/*
 * The connection to RabbitMQ, in a thread of its own as librabbitmq blocks. See amqp.c.
 *
 * A service has a channel, which it shares only with those whose ids are a multiple of
 * NR_CHANNELS away: an exchange that is not there has the broker close the channel, and all that
 * was not confirmed on it has failed. It is opened again with the next message, which is sent
 * without waiting for the answer, as the broker looks at what comes in order.
 *
 * Nothing is written but after a look at the lease and the deadline, and when the socket has room:
 * so a broker that does not read leaves messages in the queue, but for what does not fit any more.
 * The thread waits for that, until heartbeats tell that the broker is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "broker.h"

#define NR_CHANNELS	1000
#define FRAME_BYTES	131072
#define HEARTBEAT_S	10
/* After a connection was lost or not had, with jitter; it is doubled each time. */
#define PAUSE_NS	(100 * TWHEEL_MSEC)
#define MAX_PAUSE_SHIFT	8
/* So many are sent before it is looked what has come. */
#define MAX_TURN	64
#define MAX_PASSWORD	1000

/** struct channel - @sent are messages in order of their tags; @tag is the last one */
struct channel {
	bool open;
	uint64_t tag;
	struct list sent;
	char returned[100];
};

/**
 * struct broker - what the thread alone has
 * @a:           what it shares with the loop
 * @connection:  NULL if there is none
 * @url:         which is tried next
 * @failures:    in a row, without a confirm in between
 * @nr_channels: how many the broker allows
 * @lost:        why there is no connection
 * @channels:    from 1 on
 */
struct broker {
	struct amqp *a;
	amqp_connection_state_t connection;
	unsigned int url, failures, nr_channels;
	char lost[200];
	struct channel channels[NR_CHANNELS + 1];
};

static void __attribute__((format(printf, 2, 3))) lose(struct broker *b, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(b->lost, sizeof(b->lost), format, args);
	va_end(args);
}

static void set_state(struct broker *b, enum amqp_state state, const char *why)
{
	pthread_mutex_lock(&b->a->lock);
	b->a->state = state;
	b->a->told = false;
	snprintf(b->a->why, sizeof(b->a->why), "%s", why);
	pthread_mutex_unlock(&b->a->lock);
	amqp_wake(b->a->over_fd.fd);
}

static bool is_ok(struct broker *b, int status)
{
	if (status != AMQP_STATUS_OK)
		lose(b, "%s", amqp_error_string2(status));
	return status == AMQP_STATUS_OK;
}

/* What it was for may have ended; else the loop gets it back. */
static void __attribute__((format(printf, 4, 5)))
end(struct broker *b, struct message *m, enum amqp_result result, const char *format, ...)
{
	bool is_wanted, first;
	va_list args;

	m->result = result;
	va_start(args, format);
	vsnprintf(m->why, sizeof(m->why), format, args);
	va_end(args);
	pthread_mutex_lock(&b->a->lock);
	is_wanted = m->call;
	first = is_wanted && list_is_empty(&b->a->over);
	m->over = is_wanted;
	if (is_wanted)
		list_add_tail(&b->a->over, &m->link);
	pthread_mutex_unlock(&b->a->lock);
	/* The loop may have freed it meanwhile. */
	if (!is_wanted)
		amqp_message_free(m);
	else if (first)
		amqp_wake(b->a->over_fd.fd);
}

/* All that was sent on it and not confirmed. */
static void fail_channel(struct broker *b, struct channel *c, const char *why)
{
	struct message *m;

	c->open = false;
	while (!list_is_empty(&c->sent)) {
		m = to_message(c->sent.next);
		list_del(&m->link);
		end(b, m, FAILED, "%s", why);
	}
}

static int publish(struct broker *b, struct message *m, struct channel *c)
{
	const amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
			  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
			  AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_APP_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.content_type = amqp_text(m->type),
		.delivery_mode = AMQP_DELIVERY_PERSISTENT,
		.message_id = amqp_text(m->id),
		.timestamp = m->at,
		.type = amqp_text(m->name),
		.app_id = amqp_text("twheeld"),
		.headers = { .num_entries = m->nr, .entries = m->headers },
	};

	const amqp_bytes_t body = { .len = m->payload.len, .bytes = m->payload.data };

	return amqp_basic_publish(b->connection, (amqp_channel_t)(c - b->channels),
				  amqp_text(m->exchange), amqp_text(m->key), true, false,
				  &properties, body);
}

/* The broker answers to what is sent here when it gets to it; from then on it counts messages. */
static int open_channel(struct broker *b, struct channel *c)
{
	const amqp_channel_t nr = (amqp_channel_t)(c - b->channels);
	amqp_channel_open_t channel = { .out_of_band = amqp_empty_bytes };
	amqp_confirm_select_t confirm = { .nowait = false };
	int status;

	if (c->open)
		return AMQP_STATUS_OK;
	c->tag = 0;
	c->open = true;
	status = amqp_send_method(b->connection, nr, AMQP_CHANNEL_OPEN_METHOD, &channel);
	if (status == AMQP_STATUS_OK)
		status = amqp_send_method(b->connection, nr, AMQP_CONFIRM_SELECT_METHOD, &confirm);
	return status;
}

/* The last look before it is written. */
static bool may_send(struct broker *b, struct message *m)
{
	uint64_t now_ns = boottime_ns();
	bool in_time, is_valid;

	pthread_mutex_lock(&b->a->lock);
	in_time = m->call && now_ns < m->deadline_ns;
	is_valid = lease_is_valid(b->a->node);
	if (in_time && is_valid)
		m->began_ns = now_ns;
	pthread_mutex_unlock(&b->a->lock);
	if (!in_time)
		end(b, m, FAILED, "no time was left to send it");
	else if (!is_valid)
		end(b, m, WITHHELD, "this node lost its lease");
	return in_time && is_valid;
}

static bool send_message(struct broker *b, struct message *m)
{
	struct channel *c = &b->channels[1 + (uint32_t)m->service % b->nr_channels];
	int status = open_channel(b, c);

	if (status != AMQP_STATUS_OK) {
		end(b, m, FAILED, "%s", amqp_error_string2(status));
	} else if (may_send(b, m)) {
		m->tag = ++c->tag;
		list_add_tail(&c->sent, &m->link);
		status = publish(b, m, c);
		buf_free(&m->payload);
	}
	return is_ok(b, status);
}

static struct message *next_message(struct broker *b)
{
	struct message *m = NULL;

	pthread_mutex_lock(&b->a->lock);
	if (!b->a->stop && b->a->state == AMQP_UP && !list_is_empty(&b->a->queue)) {
		m = to_message(b->a->queue.next);
		list_del(&m->link);
		m->queued = false;
	}
	pthread_mutex_unlock(&b->a->lock);
	return m;
}

static bool is_writable(const struct broker *b)
{
	struct pollfd fd = { .fd = b->a->fd, .events = POLLOUT };

	return poll(&fd, 1, 0) == 1;
}

static bool send_queued(struct broker *b)
{
	struct message *m;
	int i;

	for (i = 0; i < MAX_TURN && is_writable(b); i++) {
		m = next_message(b);
		if (!m)
			return true;
		if (!send_message(b, m))
			return false;
	}
	return true;
}

/* ---------------------------------------------------- what the broker says */

/* Of @tag, or all up to that one. */
static void settle(struct broker *b, struct channel *c, uint64_t tag, bool multiple, bool confirmed)
{
	struct list *at, *next;
	struct message *m;

	for (at = c->sent.next; at != &c->sent; at = next) {
		next = at->next;
		m = to_message(at);
		if (tag && m->tag > tag)
			break;
		if (m->tag != tag && !multiple)
			continue;
		list_del(at);
		if (m->result == UNROUTABLE)
			end(b, m, UNROUTABLE, "no queue is bound for it: %s", c->returned);
		else if (confirmed)
			end(b, m, CONFIRMED, "%s", "");
		else
			end(b, m, REFUSED, "the broker refused it: a queue is full or failed");
	}
	if (confirmed)
		b->failures = 0;
}

/* What was returned is the first one of that id that has not been. Its confirm comes after this. */
static void was_returned(struct channel *c, const amqp_basic_properties_t *p)
{
	struct message *m;
	struct list *at;

	for (at = c->sent.next; at != &c->sent; at = at->next) {
		m = to_message(at);
		if (m->result == UNROUTABLE || strlen(m->id) != p->message_id.len ||
		    memcmp(m->id, p->message_id.bytes, p->message_id.len))
			continue;
		m->result = UNROUTABLE;
		return;
	}
}

static void got_return(struct channel *c, const amqp_basic_return_t *r)
{
	snprintf(c->returned, sizeof(c->returned), "%d %.*s", r->reply_code,
		 (int)r->reply_text.len, (const char *)r->reply_text.bytes);
}

static bool got_channel_close(struct broker *b, struct channel *c, const amqp_channel_close_t *m)
{
	amqp_channel_close_ok_t ok = {};
	char why[200];
	int status;

	snprintf(why, sizeof(why), "the broker closed the channel: %d %.*s", m->reply_code,
		 (int)m->reply_text.len, (const char *)m->reply_text.bytes);
	fail_channel(b, c, why);
	status = amqp_send_method(b->connection, (amqp_channel_t)(c - b->channels),
				  AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
	return is_ok(b, status);
}

static void lose_by_close(struct broker *b, const amqp_connection_close_t *m)
{
	lose(b, "%d %.*s", m->reply_code, (int)m->reply_text.len,
	     (const char *)m->reply_text.bytes);
}

static void got_blocked(struct broker *b, const amqp_connection_blocked_t *m)
{
	char why[200];

	snprintf(why, sizeof(why), "%.*s", (int)m->reason.len, (const char *)m->reason.bytes);
	set_state(b, AMQP_BLOCKED, why);
}

static bool got_method(struct broker *b, struct channel *c, const amqp_method_t *method)
{
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;

	switch (method->id) {
	case AMQP_BASIC_ACK_METHOD:
		settle(b, c, ack->delivery_tag, ack->multiple, true);
		return true;
	case AMQP_BASIC_NACK_METHOD:
		settle(b, c, nack->delivery_tag, nack->multiple, false);
		return true;
	case AMQP_BASIC_RETURN_METHOD:
		got_return(c, method->decoded);
		return true;
	case AMQP_CHANNEL_CLOSE_METHOD:
		return got_channel_close(b, c, method->decoded);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		got_blocked(b, method->decoded);
		return true;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		set_state(b, AMQP_UP, "");
		return true;
	case AMQP_CONNECTION_CLOSE_METHOD:
		lose_by_close(b, method->decoded);
		return false;
	default:
		return true;
	}
}

static bool receive(struct broker *b)
{
	struct timeval none = {};
	amqp_frame_t frame;
	bool goes_on = true;
	int status;

	while (goes_on) {
		status = amqp_simple_wait_frame_noblock(b->connection, &frame, &none);
		if (status == AMQP_STATUS_TIMEOUT)
			return true;
		if (!is_ok(b, status))
			return false;
		/* Of what is returned the header says which it is, and the body is of no use. */
		if (frame.channel > b->nr_channels)
			continue;
		if (frame.frame_type == AMQP_FRAME_HEADER)
			was_returned(&b->channels[frame.channel], frame.payload.properties.decoded);
		else if (frame.frame_type == AMQP_FRAME_METHOD)
			goes_on = got_method(b, &b->channels[frame.channel], &frame.payload.method);
		amqp_maybe_release_buffers_on_channel(b->connection, frame.channel);
	}
	return false;
}

/* ---------------------------------------------------------- the connection */

static bool read_password(struct broker *b, char *password)
{
	const char *path = b->a->node->config->amqp_password_file;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = -1;

	if (fd >= 0) {
		len = read(fd, password, MAX_PASSWORD - 1);
		close(fd);
	}
	if (len < 0) {
		lose(b, "%s: %s", path, strerrordesc_np(errno));
		return false;
	}
	password[len] = 0;
	password[strcspn(password, "\r\n")] = 0;
	return true;
}

static amqp_table_entry_t can(const char *name)
{
	return (amqp_table_entry_t){
		.key = amqp_text(name),
		.value = { .kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = true },
	};
}

static amqp_table_entry_t is(const char *name, const char *text)
{
	return (amqp_table_entry_t){
		.key = amqp_text(name),
		.value = { .kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_text(text) },
	};
}

static bool log_in(struct broker *b, const struct amqp_connection_info *to, const char *password)
{
	amqp_table_entry_t abilities[] = {
		can("publisher_confirms"), can("basic.nack"), can("connection.blocked"),
	};
	amqp_table_entry_t client[] = {
		is("product", "twheeld"),
		is("connection_name", b->a->node->config->name),
		{ .key = amqp_text("capabilities"), .value = {
			.kind = AMQP_FIELD_KIND_TABLE,
			.value.table = { ARRAY_SIZE(abilities), abilities },
		} },
	};
	amqp_table_t about = { ARRAY_SIZE(client), client };
	amqp_rpc_reply_t r;

	/* That of "amqp://host/" is empty, which none is. */
	r = amqp_login_with_properties(b->connection, *to->vhost ? to->vhost : "/", NR_CHANNELS,
				       FRAME_BYTES, HEARTBEAT_S, &about, AMQP_SASL_METHOD_PLAIN,
				       to->user, password);
	if (r.reply_type == AMQP_RESPONSE_NORMAL) {
		b->nr_channels = (unsigned int)amqp_get_channel_max(b->connection);
		return true;
	}
	if (r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
	    r.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
		lose_by_close(b, r.reply.decoded);
	else
		lose(b, "%s", amqp_error_string2(r.library_error));
	return false;
}

static void set_fd(struct broker *b, int fd)
{
	pthread_mutex_lock(&b->a->lock);
	b->a->fd = fd;
	pthread_mutex_unlock(&b->a->lock);
}

static bool open_socket(struct broker *b, const struct amqp_connection_info *to)
{
	const struct timeval timeout = { .tv_sec = CONNECT_S };
	amqp_socket_t *socket;
	int status;

	b->connection = amqp_new_connection();
	if (!b->connection)
		abort();
	socket = to->ssl ? amqp_ssl_socket_new(b->connection) : amqp_tcp_socket_new(b->connection);
	if (!socket)
		abort();
	amqp_set_handshake_timeout(b->connection, &timeout);
	status = to->ssl ? amqp_ssl_socket_set_cacert(socket, b->a->node->config->amqp_ca) :
			   AMQP_STATUS_OK;
	if (status == AMQP_STATUS_OK)
		status = amqp_socket_open_noblock(socket, to->host, to->port, &timeout);
	if (status == AMQP_STATUS_OK)
		set_fd(b, amqp_get_sockfd(b->connection));
	return is_ok(b, status);
}

/* Each time another one of the brokers that are said. */
static bool connect_to(struct broker *b)
{
	const struct config *c = b->a->node->config;
	char *url = xstrdup(c->amqp[b->url++ % c->nr_amqp]), password[MAX_PASSWORD];
	struct amqp_connection_info to;
	bool is_open;

	/* It was looked at when it was read; this has it in pieces. */
	if (amqp_parse_url(url, &to) != AMQP_STATUS_OK)
		abort();
	snprintf(password, sizeof(password), "%s", to.password);
	is_open = (!*c->amqp_password_file || read_password(b, password)) &&
		  open_socket(b, &to) && log_in(b, &to, password);
	if (is_open)
		set_state(b, AMQP_UP, to.host);
	free(url);
	return is_open;
}

static void disconnect(struct broker *b)
{
	char why[sizeof(b->lost) + 64];
	unsigned int i;

	set_fd(b, -1);
	if (b->connection)
		amqp_destroy_connection(b->connection);
	b->connection = NULL;
	set_state(b, AMQP_DOWN, b->lost);
	snprintf(why, sizeof(why), "the connection was lost before it was confirmed: %s", b->lost);
	for (i = 1; i <= NR_CHANNELS; i++)
		fail_channel(b, &b->channels[i], why);
}

/* Whether there is something to send; not for long if it is to end. */
static bool has_work(struct broker *b, bool *stop)
{
	bool has;

	pthread_mutex_lock(&b->a->lock);
	*stop = b->a->stop;
	has = !list_is_empty(&b->a->queue) && b->a->state != AMQP_BLOCKED;
	pthread_mutex_unlock(&b->a->lock);
	return has;
}

static void rest(struct broker *b, short events, int ms)
{
	struct pollfd fds[] = {
		{ .fd = b->a->wake_fd, .events = POLLIN }, { .fd = b->a->fd, .events = events },
	};

	if (poll(fds, b->a->fd < 0 ? 1 : 2, ms) > 0 && fds[0].revents)
		amqp_calm(b->a->wake_fd);
}

/* So that the broker does not wonder; what it has to say to that is not waited for. */
static void say_goodbye(struct broker *b)
{
	amqp_connection_close_t m = { AMQP_REPLY_SUCCESS, amqp_text("end"), 0, 0 };

	lose(b, "this node ends");
	if (b->a->state == AMQP_UP && is_writable(b))
		amqp_send_method(b->connection, 0, AMQP_CONNECTION_CLOSE_METHOD, &m);
}

/* Until the connection is lost, or it is to end. Heartbeats are sent by receive(). */
static void serve(struct broker *b)
{
	bool stop, has;

	while (receive(b) && send_queued(b)) {
		has = has_work(b, &stop);
		if (stop) {
			say_goodbye(b);
			return;
		}
		rest(b, has ? POLLIN | POLLOUT : POLLIN, 1000);
	}
}

/* Whether there is something to do; after a failure, when some time has passed. */
static bool wait_for_work(struct broker *b)
{
	const unsigned int shift = b->failures < MAX_PAUSE_SHIFT ? b->failures : MAX_PAUSE_SHIFT;
	uint64_t now_ns = boottime_ns(), until_ns = now_ns, most_ns;
	bool stop;

	if (b->failures) {
		most_ns = PAUSE_NS << shift;
		until_ns += most_ns / 2 + now_ns % (most_ns / 2);
	}
	while (!has_work(b, &stop) || now_ns < until_ns) {
		if (stop)
			return false;
		rest(b, 0, now_ns < until_ns ? 1 + (int)((until_ns - now_ns) / TWHEEL_MSEC) : -1);
		now_ns = boottime_ns();
	}
	return !stop;
}

void *broker_run(void *arg)
{
	struct broker *b = xcalloc(1, sizeof(*b));
	unsigned int i;

	b->a = arg;
	for (i = 0; i <= NR_CHANNELS; i++)
		list_init(&b->channels[i].sent);
	while (wait_for_work(b)) {
		if (connect_to(b))
			serve(b);
		b->failures++;
		disconnect(b);
	}
	free(b);
	return NULL;
}

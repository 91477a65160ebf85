// SPDX-License-Identifier: GPL-2.0
/*
 * Does a thing at a RabbitMQ on loopback:
 *
 *   peer PORT queue NAME [MOST]             declares it; with MOST it refuses what is more
 *   peer PORT exchange NAME                 the same, of type direct
 *   peer PORT unqueue NAME, unexchange NAME
 *   peer PORT bind QUEUE EXCHANGE KEY
 *   peer PORT consume QUEUE                 until it is killed: a line of JSON for each message
 *
 * A message is acknowledged when its line is written. "at" is when it came, in s since 1970.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../rabbitmq.h"

static amqp_connection_state_t connection;

static void check(const char *what)
{
	amqp_rpc_reply_t r = amqp_get_rpc_reply(connection);

	if (r.reply_type == AMQP_RESPONSE_NORMAL)
		return;
	fprintf(stderr, "%s: %s\n", what, r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION ?
		"refused" : amqp_error_string2(r.library_error));
	exit(1);
}

static void open_connection(int port)
{
	amqp_socket_t *socket;
	amqp_rpc_reply_t r;

	connection = amqp_new_connection();
	socket = amqp_tcp_socket_new(connection);
	if (!socket || amqp_socket_open(socket, "127.0.0.1", port)) {
		fputs("no connection\n", stderr);
		exit(1);
	}
	r = amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
	if (r.reply_type != AMQP_RESPONSE_NORMAL) {
		fputs("no login\n", stderr);
		exit(1);
	}
	amqp_channel_open(connection, 1);
	check("channel");
}

static amqp_bytes_t text(const char *s)
{
	return amqp_cstring_bytes(s);
}

static void declare_queue(const char *name, const char *most)
{
	amqp_table_entry_t entries[2] = {
		{ .key = text("x-max-length"), .value = { .kind = AMQP_FIELD_KIND_I32 } },
		{ .key = text("x-overflow"), .value = { .kind = AMQP_FIELD_KIND_UTF8 } },
	};
	amqp_table_t table = { .num_entries = most ? 2 : 0, .entries = entries };

	entries[0].value.value.i32 = most ? atoi(most) : 0;
	entries[1].value.value.bytes = text("reject-publish");
	/* Of another run. */
	amqp_queue_delete(connection, 1, text(name), false, false);
	check("delete");
	amqp_queue_declare(connection, 1, text(name), false, true, false, false, table);
}

/* Of JSON; bytes that are not ASCII are as they are. */
static void put_text(const char *name, amqp_bytes_t b)
{
	const unsigned char *c = b.bytes;
	size_t i;

	printf("\"%s\": \"", name);
	for (i = 0; i < b.len; i++) {
		if (c[i] < ' ' || c[i] == '"' || c[i] == '\\')
			printf("\\u%04x", c[i]);
		else
			putchar(c[i]);
	}
	printf("\", ");
}

static void put_headers(const amqp_table_t *table)
{
	const amqp_table_entry_t *e;
	char name[256];
	int i;

	for (i = 0; i < table->num_entries; i++) {
		e = &table->entries[i];
		snprintf(name, sizeof(name), "%.*s", (int)e->key.len, (char *)e->key.bytes);
		if (e->value.kind == AMQP_FIELD_KIND_I64)
			printf("\"%s\": %lld, ", name, (long long)e->value.value.i64);
		else
			put_text(name, e->value.value.bytes);
	}
}

static void put_message(const amqp_envelope_t *e)
{
	const amqp_basic_properties_t *p = &e->message.properties;
	const unsigned char *body = e->message.body.bytes;
	struct timespec now;
	size_t i;

	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"at\": %lld.%06ld, \"redelivered\": %d, \"mode\": %d, \"timestamp\": %llu, ",
	       (long long)now.tv_sec, now.tv_nsec / 1000, e->redelivered, p->delivery_mode,
	       (unsigned long long)p->timestamp);
	put_text("type", p->content_type);
	put_text("id", p->message_id);
	put_text("service", p->type);
	put_text("app", p->app_id);
	put_text("exchange", e->exchange);
	put_text("key", e->routing_key);
	put_headers(&p->headers);
	printf("\"body\": \"");
	for (i = 0; i < e->message.body.len; i++)
		printf("%02x", body[i]);
	printf("\"}\n");
}

static void consume(const char *queue)
{
	amqp_envelope_t envelope;
	amqp_rpc_reply_t r;

	amqp_basic_qos(connection, 1, 0, 200, false);
	check("qos");
	amqp_basic_consume(connection, 1, text(queue), amqp_empty_bytes, false, false, false,
			   amqp_empty_table);
	check("consume");
	printf("\n");
	for (;;) {
		fflush(stdout);
		amqp_maybe_release_buffers(connection);
		r = amqp_consume_message(connection, &envelope, NULL, 0);
		if (r.reply_type != AMQP_RESPONSE_NORMAL)
			exit(1);
		put_message(&envelope);
		fflush(stdout);
		amqp_basic_ack(connection, 1, envelope.delivery_tag, false);
		amqp_destroy_envelope(&envelope);
	}
}

static bool is(const char *what, const char *name, int argc, int nr)
{
	return !strcmp(what, name) && argc == nr;
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[2] : "";

	if (argc < 4)
		return 2;
	open_connection(atoi(argv[1]));
	if (!strcmp(what, "queue"))
		declare_queue(argv[3], argc > 4 ? argv[4] : NULL);
	else if (is(what, "exchange", argc, 4))
		amqp_exchange_declare(connection, 1, text(argv[3]), text("direct"), false, true,
				      false, false, amqp_empty_table);
	else if (is(what, "unqueue", argc, 4))
		amqp_queue_delete(connection, 1, text(argv[3]), false, false);
	else if (is(what, "unexchange", argc, 4))
		amqp_exchange_delete(connection, 1, text(argv[3]), false);
	else if (is(what, "bind", argc, 6))
		amqp_queue_bind(connection, 1, text(argv[3]), text(argv[4]), text(argv[5]),
				amqp_empty_table);
	else if (is(what, "consume", argc, 4))
		consume(argv[3]);
	else
		return 2;
	check(what);
	amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(connection);
	return 0;
}

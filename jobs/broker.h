/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the loop (amqp.c) and the thread that has the connection (broker.c) have in common.
 *
 *   queued  in @queue of struct amqp. Whoever takes a message from there has it
 *   sent    on a channel, until it is confirmed, refused or lost; the thread's
 *   over    in @over of struct amqp; the loop's
 */
#ifndef TWHEELD_BROKER_H
#define TWHEELD_BROKER_H

#include <pthread.h>

#include "node.h"
#include "rabbitmq.h"

/* As the schema has it, and those that each message has. */
#define MAX_HEADERS	(32 + 4)
#define CONNECT_S	5

enum amqp_result { WITHHELD, CONFIRMED, REFUSED, UNROUTABLE, FAILED };

/**
 * struct message - a call, as far as the thread has to know it
 * @link:     see above
 * @call:     whose it is; NULL if that has ended. The loop's, but under the lock
 * @queued:   in the queue
 * @over:     in the list of those that are over
 * @began_ns: when it was sent
 * @result:   what came of it
 * @why:      that in words
 * @service:  its id, by which it has a channel
 * @deadline_ns: nothing is sent from then on
 * @tag:      its number on the channel
 * @exchange: where it goes; the routing key is behind
 * @key:      that
 * @type:     of the content
 * @name:     of the service
 * @texts:    for @headers: those of the service as "Name: value", and when it is due
 * @id:       of the message, the same for each attempt
 * @at:       when the job was to be done, in s since 1970
 * @job:      its id
 * @attempt:  which, from 1 on
 * @nr:       of headers
 * @headers:  of the message
 * @payload:  freed when it is sent
 */
struct message {
	struct list link;
	struct call *call;
	bool queued, over;
	uint64_t began_ns;
	enum amqp_result result;
	char why[200];

	int32_t service;
	uint64_t deadline_ns;
	uint64_t tag;
	char *exchange, *key, *name;
	const char *type;
	struct buf texts;
	char id[37];
	uint64_t at;
	int64_t job;
	int32_t attempt;
	int nr;
	amqp_table_entry_t headers[MAX_HEADERS];
	struct buf payload;
};

/**
 * struct amqp - the connection, and who has it
 * @node:    whose it is
 * @active:  calls; the loop's
 * @over_fd: tells the loop that there is something
 * @thread:  runs while there is a broker in the configuration
 * @running: that was started
 * @wake_fd: tells the thread
 * @lock:    for what follows
 * @queue:   messages to be sent
 * @over:    those of which it is known what came of them
 * @stop:    the thread is to end
 * @fd:      of the connection, for who wants to cut it off; -1 if there is none
 * @state:   of the connection
 * @told:    the loop knows of @state
 * @why:     it is so
 */
struct amqp {
	struct node *node;
	struct list active;
	struct loop_fd over_fd;
	pthread_t thread;
	bool running;
	int wake_fd;

	pthread_mutex_t lock;
	struct list queue, over;
	bool stop, told;
	int fd;
	enum amqp_state state;
	char why[200];
};

static inline struct message *to_message(struct list *link)
{
	return TWHEEL_CONTAINER(link, struct message, link);
}

/* A text that is not copied. */
static inline amqp_bytes_t amqp_text(const char *text)
{
	return amqp_cstring_bytes(text);
}

void amqp_message_free(struct message *m);

/* The other side, and that it was heard. */
void amqp_wake(int fd);
void amqp_calm(int fd);

/* The thread. */
void *broker_run(void *arg);

#endif

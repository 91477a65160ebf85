/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bytes that grow, and arrays as PostgreSQL takes them in binary.
 */
#ifndef TWHEELD_BUF_H
#define TWHEELD_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/**
 * struct buf - bytes; zeroed is empty
 * @data: those, and a NUL behind them that is not counted; NULL if there never were any
 * @len:  how many
 * @room: for how many @data has room
 *
 * Memory that cannot be had ends the process: a node may die at any time, that is what the
 * others are for.
 */
struct buf {
	char *data;
	size_t len;
	size_t room;
};

void buf_add(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_free(struct buf *b);

/**
 * struct pg_array - elements of one type
 * @buf: header and elements, as the protocol has them
 * @nr:  how many
 */
struct pg_array {
	struct buf buf;
	uint32_t nr;
};

/* What stands before the elements, in the order of the network. */
struct pg_array_header {
	uint32_t dimensions;
	uint32_t nulls;
	uint32_t type;
	uint32_t nr;
	uint32_t lower;
};

/* Each adds one element. The type is said by the statement that gets the array. */
void pg_array_int2(struct pg_array *a, int16_t value);
void pg_array_int4(struct pg_array *a, int32_t value);
void pg_array_int8(struct pg_array *a, int64_t value);		/* timestamptz as well */
void pg_array_float8(struct pg_array *a, double value);
void pg_array_bytes(struct pg_array *a, const void *data, size_t len);	/* text, bytea, uuid */
void pg_array_null(struct pg_array *a);

/* Completes what precedes the elements, of @type; nothing may be added any more. */
void pg_array_finish(struct pg_array *a, uint32_t type);
void pg_array_free(struct pg_array *a);

void *xmalloc(size_t size);
void *xcalloc(size_t nr, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);

#endif

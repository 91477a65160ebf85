// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "log.h"

static void __attribute__((noreturn)) no_memory(void)
{
	log_error("no-memory");
	abort();
}

void *xmalloc(size_t size)
{
	void *p = malloc(size ? size : 1);

	if (!p)
		no_memory();
	return p;
}

void *xcalloc(size_t nr, size_t size)
{
	void *p = calloc(nr ? nr : 1, size ? size : 1);

	if (!p)
		no_memory();
	return p;
}

void *xrealloc(void *old, size_t size)
{
	void *p = realloc(old, size ? size : 1);

	if (!p)
		no_memory();
	return p;
}

char *xstrdup(const char *text)
{
	char *p = strdup(text);

	if (!p)
		no_memory();
	return p;
}

/* Room for @len more and a NUL. */
static void reserve(struct buf *b, size_t len)
{
	size_t need, room = b->room ? b->room : 64;

	if (__builtin_add_overflow(b->len, len, &need) || need >= SIZE_MAX / 4)
		no_memory();
	if (need < b->room)
		return;
	while (room <= need)
		room *= 2;
	b->data = xrealloc(b->data, room);
	b->room = room;
}

void buf_add(struct buf *b, const void *data, size_t len)
{
	reserve(b, len);
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
	buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
	va_list args, again;
	int len;

	va_start(args, format);
	va_copy(again, args);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0)
		no_memory();
	reserve(b, (size_t)len);
	vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
	va_end(again);
	b->len += (size_t)len;
}

void buf_free(struct buf *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

/* What precedes the elements; db_add_array() fills in the rest. */
static void begin(struct pg_array *a)
{
	static const struct pg_array_header none;

	if (!a->buf.len)
		buf_add(&a->buf, &none, sizeof(none));
}

static void element(struct pg_array *a, const void *data, size_t len)
{
	uint32_t be = htonl((uint32_t)len);

	if (len > INT32_MAX)
		no_memory();
	begin(a);
	buf_add(&a->buf, &be, sizeof(be));
	buf_add(&a->buf, data, len);
	a->nr++;
}

void pg_array_int2(struct pg_array *a, int16_t value)
{
	uint16_t be = htobe16((uint16_t)value);

	element(a, &be, sizeof(be));
}

void pg_array_int4(struct pg_array *a, int32_t value)
{
	uint32_t be = htobe32((uint32_t)value);

	element(a, &be, sizeof(be));
}

void pg_array_int8(struct pg_array *a, int64_t value)
{
	uint64_t be = htobe64((uint64_t)value);

	element(a, &be, sizeof(be));
}

void pg_array_float8(struct pg_array *a, double value)
{
	uint64_t be;

	memcpy(&be, &value, sizeof(be));
	be = htobe64(be);
	element(a, &be, sizeof(be));
}

void pg_array_bytes(struct pg_array *a, const void *data, size_t len)
{
	element(a, data, len);
}

void pg_array_null(struct pg_array *a)
{
	const uint32_t none = UINT32_MAX;
	struct pg_array_header header;

	begin(a);
	memcpy(&header, a->buf.data, sizeof(header));
	header.nulls = htonl(1);
	memcpy(a->buf.data, &header, sizeof(header));
	buf_add(&a->buf, &none, sizeof(none));
	a->nr++;
}

void pg_array_finish(struct pg_array *a, uint32_t type)
{
	struct pg_array_header header;

	begin(a);
	memcpy(&header, a->buf.data, sizeof(header));
	header.type = htonl(type);
	if (!a->nr) {
		/* Of no dimension: neither length nor lower bound follow. */
		a->buf.len = offsetof(struct pg_array_header, nr);
	} else {
		header.dimensions = htonl(1);
		header.nr = htonl(a->nr);
		header.lower = htonl(1);
	}
	memcpy(a->buf.data, &header, sizeof(header));
}

void pg_array_free(struct pg_array *a)
{
	buf_free(&a->buf);
	a->nr = 0;
}

// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "buf.h"

static bool is(const struct buf *b, const char *bytes, size_t len)
{
	return b->len == len && !memcmp(b->data, bytes, len) && !b->data[len];
}

static void bytes(void)
{
	struct buf b = { 0 };

	buf_add(&b, NULL, 0);
	ok(is(&b, "", 0), "nothing added is an empty text");
	buf_add(&b, "a\0b", 3);
	ok(is(&b, "a\0b", 3), "bytes are added as they are");
	buf_puts(&b, "cd");
	buf_printf(&b, "%d%s", 17, "");
	ok(is(&b, "a\0bcd17", 7), "texts are added behind");
	buf_free(&b);
	ok(!b.data && !b.len && !b.room, "what was freed is as it began");
}

/* Each length up to beyond several sizes of room, one byte at a time and at once. */
static void growth(void)
{
	struct buf b = { 0 }, whole = { 0 };
	char pattern[700];
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7 + 1);
	for (i = 0; i < sizeof(pattern); i++) {
		buf_add(&b, pattern + i, 1);
		good &= is(&b, pattern, i + 1);
		buf_free(&whole);
		buf_add(&whole, pattern, i + 1);
		good &= is(&whole, pattern, i + 1);
	}
	ok(good, "a buffer keeps what it has as it grows");
	buf_free(&b);
	buf_printf(&b, "%*s", 5000, "x");
	ok(b.len == 5000 && strlen(b.data) == 5000 && b.data[4999] == 'x',
	   "a formatted text may be long");
	buf_free(&b);
	buf_free(&whole);
}

static void arrays(void)
{
	struct pg_array a = { 0 };

	pg_array_finish(&a, 20);
	ok(is(&a.buf, "\0\0\0\0\0\0\0\0\0\0\0\x14", 12),
	   "an array without elements has no dimension");
	pg_array_free(&a);

	pg_array_int4(&a, -2);
	pg_array_int4(&a, 3);
	pg_array_finish(&a, 23);
	ok(is(&a.buf, "\0\0\0\1\0\0\0\0\0\0\0\x17\0\0\0\2\0\0\0\1"
	      "\0\0\0\4\xff\xff\xff\xfe\0\0\0\4\0\0\0\3", 36),
	   "an array has its header, and lengths before elements");
	pg_array_free(&a);

	pg_array_null(&a);
	pg_array_int2(&a, 0x102);
	pg_array_finish(&a, 21);
	ok(is(&a.buf, "\0\0\0\1\0\0\0\1\0\0\0\x15\0\0\0\2\0\0\0\1"
	      "\xff\xff\xff\xff\0\0\0\2\1\2", 30),
	   "an array says that it has nulls");
	pg_array_free(&a);

	pg_array_int8(&a, 0x0102030405060708);
	pg_array_float8(&a, 1.0);
	pg_array_bytes(&a, "x\0", 2);
	ok(a.nr == 3 && a.buf.len == 20 + 12 + 12 + 6 &&
	   !memcmp(a.buf.data + 20, "\0\0\0\x08\1\2\3\4\5\6\7\x08"
		   "\0\0\0\x08\x3f\xf0\0\0\0\0\0\0\0\0\0\2x\0", 30),
	   "elements are in the order of the network");
	pg_array_free(&a);
	ok(!a.nr && !a.buf.data, "an array that was freed is as it began");
}

int main(void)
{
	bytes();
	growth();
	arrays();
	return done_testing();
}

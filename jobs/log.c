// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

/* Longer lines are cut, which leaves room for eight texts of quoted(). */
#define MAX_LINE	4096
/* Bytes of a text, before they are escaped. */
#define MAX_QUOTED	240

int log_level = LOG_I;

static const char *const names[] = {
	[LOG_E] = "error", [LOG_W] = "warning", [LOG_N] = "notice", [LOG_I] = "info",
	[LOG_D] = "debug",
};

/* Whether stderr is the journal, which it says by device and inode. */
static bool to_journal(void)
{
	static int known = -1;
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	if (known >= 0)
		return known;
	known = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
		!fstat(STDERR_FILENO, &st) && st.st_dev == dev && st.st_ino == ino;
	return known;
}

static int prefix(char *line, size_t room, int level)
{
	struct timespec now;
	struct tm tm;
	char text[32];

	if (to_journal())
		return snprintf(line, room, "<%d>", level);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	return snprintf(line, room, "%s.%03ldZ %s ", text, now.tv_nsec / 1000000, names[level]);
}

void log_at(int level, const char *format, ...)
{
	int saved = errno, len, more;
	char line[MAX_LINE], *c;
	va_list args;

	if (level > log_level)
		return;
	len = prefix(line, sizeof(line), level);
	va_start(args, format);
	more = vsnprintf(line + len, sizeof(line) - (size_t)len, format, args);
	va_end(args);
	if (more > 0)
		len += more;
	if (len > MAX_LINE - 1)
		len = MAX_LINE - 1;
	/* One event is one line, whatever was forgotten to be quoted. */
	for (c = line; c < line + len; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	line[len++] = '\n';
	/* There is nobody to tell that it does not work. */
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		errno = 0;
	errno = saved;
}

static bool is_plain(const char *text)
{
	const char *c;

	for (c = text; *c; c++)
		if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') &&
		    !(*c >= '0' && *c <= '9') && !strchr("._/:@+-", *c))
			return false;
	return c > text && c - text <= MAX_QUOTED;
}

/* As much of @text as may be told, without a part of a character of UTF-8. */
static size_t cut(const char *text)
{
	size_t len = strnlen(text, MAX_QUOTED + 1);

	if (len <= MAX_QUOTED)
		return len;
	len = MAX_QUOTED;
	while (len > MAX_QUOTED - 4 && ((unsigned char)text[len] & 0xc0) == 0x80)
		len--;
	return len;
}

static char *escape(char *to, unsigned char c)
{
	if (c == '"' || c == '\\') {
		*to++ = '\\';
		*to++ = (char)c;
	} else if (c == '\n') {
		*to++ = '\\';
		*to++ = 'n';
	} else if (c < ' ' || c == 0x7f) {
		to += sprintf(to, "\\x%02x", c);
	} else {
		*to++ = (char)c;
	}
	return to;
}

const char *quoted(const char *text)
{
	static char buffers[8][4 * MAX_QUOTED + 8];
	static unsigned int turn;
	char *buffer = buffers[turn++ % 8], *to = buffer;
	size_t i, len;

	if (!text)
		return "-";
	len = cut(text);
	if (is_plain(text))
		return memcpy(buffer, text, len + 1);
	*to++ = '"';
	for (i = 0; i < len; i++)
		to = escape(to, (unsigned char)text[i]);
	sprintf(to, "%s\"", text[len] ? "..." : "");
	return buffer;
}

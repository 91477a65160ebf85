// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twheel.h>
#include <unistd.h>

#include "buf.h"
#include "config.h"
#include "log.h"
#include "rabbitmq.h"

#define MAX_LINE	4096
#define MAX_NAME	63
#define MAX_URL		255
#define MAX_AMQP	1000

#define WORD_CHARS	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

#define NAME_RULE	"%s is not 1 to %d letters, digits, \".\", \"_\" and \"-\""

/* Where a line stands, for messages; line 0 is the command line. */
struct place {
	const char *path;
	unsigned int line;
};

/* What reads a value. 0, or -1 after it was told what is wrong with it. */
struct option;
typedef int parse_fn(struct config *c, const struct option *o, const char *value,
		     const struct place *at);

/**
 * struct option - a name and what it may be
 * @name:    before the "="
 * @parse:   for what is behind
 * @list:    may be said again
 * @offset:  in struct config
 * @min:     of a number
 * @max:     of a number
 * @initial: its value if nothing is said
 */
struct option {
	const char *name;
	parse_fn *parse;
	bool list;
	size_t offset;
	uint64_t min, max;
	const char *initial;
};

static const char *const log_levels[] = { "error", "warning", "notice", "info", "debug" };

static int __attribute__((format(printf, 3, 4)))
wrong(const struct place *at, const char *name, const char *format, ...)
{
	va_list args;

	if (at->line)
		fprintf(stderr, "%s:%u: ", at->path, at->line);
	else
		fprintf(stderr, "%s: ", at->path);
	if (name)
		fprintf(stderr, "%s: ", name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return -1;
}

static void set_text(struct config *c, const struct option *o, const char *value)
{
	char **field = (char **)((char *)c + o->offset);

	free(*field);
	*field = xstrdup(value);
}

/* Digits alone, without a sign. */
static bool parse_digits(const char *text, uint64_t max, uint64_t *number)
{
	char *end;

	if (!*text || text[strspn(text, "0123456789")])
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return !errno && *number <= max;
}

static int parse_number(struct config *c, const struct option *o, const char *value,
			const struct place *at)
{
	uint64_t number;

	if (!parse_digits(value, o->max, &number) || number < o->min)
		return wrong(at, o->name, "%s is not a whole number from %llu to %llu",
			     quoted(value), (unsigned long long)o->min, (unsigned long long)o->max);
	*(uint64_t *)((char *)c + o->offset) = number;
	return 0;
}

/* libpq's message may have a part of a password: it is not told. */
static int parse_database(struct config *c, const struct option *o, const char *value,
			  const struct place *at)
{
	PQconninfoOption *options = PQconninfoParse(value, NULL);

	if (!options)
		return wrong(at, o->name,
			     "must be a connection string of libpq such as \"host=db dbname=jobs\"");
	PQconninfoFree(options);
	set_text(c, o, value);
	return 0;
}

static int parse_name(struct config *c, const struct option *o, const char *value,
		      const struct place *at)
{
	size_t len = strlen(value);

	if (!len || len > MAX_NAME || value[strspn(value, WORD_CHARS)])
		return wrong(at, o->name, NAME_RULE, quoted(value), MAX_NAME);
	set_text(c, o, value);
	return 0;
}

static bool is_url(const char *text)
{
	const char *c;

	if (strncmp(text, "http://", 7) && strncmp(text, "https://", 8))
		return false;
	for (c = text; *c; c++)
		if (*c <= ' ' || *c > '~' || strchr("\"<>\\^`{|}", *c))
			return false;
	return c - text <= MAX_URL && c[-1] != '/' && strchr(text, '/')[2];
}

static int parse_url(struct config *c, const struct option *o, const char *value,
		     const struct place *at)
{
	if (*value && !is_url(value))
		return wrong(at, o->name,
			     "%s is not a URL of http or https, up to %d characters, without a \"/\" at its end",
			     quoted(value), MAX_URL);
	set_text(c, o, value);
	return 0;
}

bool config_address(const char *text, struct sockaddr_storage *address)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	uint64_t port;
	size_t len;

	if (!colon || !parse_digits(colon + 1, 65535, &port) || !port)
		return false;
	len = (size_t)(colon - text);
	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	memset(address, 0, sizeof(*address));
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1;
	}
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1;
}

static bool is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;

	if (address->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int parse_listen(struct config *c, const struct option *o, const char *value,
			const struct place *at)
{
	struct sockaddr_storage address;

	if (strcmp(value, "none") && !config_address(value, &address))
		return wrong(at, o->name,
			     "%s is not ADDRESS:PORT, such as 127.0.0.1:8740 or [::1]:8740, nor \"none\"",
			     quoted(value));
	set_text(c, o, value);
	return 0;
}

/* One of @choices, which have a blank in between. */
static int parse_choice(struct config *c, const struct option *o, const char *value,
			const struct place *at, const char *choices)
{
	size_t len = strlen(value);
	const char *choice;

	for (choice = choices; choice; choice = strchr(choice, ' ')) {
		choice += *choice == ' ';
		if (len && strcspn(choice, " ") == len && !memcmp(choice, value, len)) {
			set_text(c, o, value);
			return 0;
		}
	}
	return wrong(at, o->name, "%s is not one of: %s", quoted(value), choices);
}

static int parse_backend(struct config *c, const struct option *o, const char *value,
			 const struct place *at)
{
	return parse_choice(c, o, value, at, "auto device local");
}

static int parse_log_level(struct config *c, const struct option *o, const char *value,
			   const struct place *at)
{
	return parse_choice(c, o, value, at, "error warning notice info debug");
}

static bool parse_hex(const char *text, unsigned char *bytes, size_t nr)
{
	static const char digits[] = "0123456789abcdef";
	const char *digit;
	size_t i;

	for (i = 0; i < 2 * nr; i++) {
		digit = text[i] ? strchr(digits, text[i] | 0x20) : NULL;
		if (!digit)
			return false;
		bytes[i / 2] = (unsigned char)(bytes[i / 2] << 4 | (digit - digits));
	}
	return true;
}

/* Roles with commas in between; 0 if one is wrong. Ends @text at each of them. */
static unsigned int parse_roles(char *text)
{
	unsigned int roles = 0;
	char *role;

	while ((role = strsep(&text, ","))) {
		if (!strcmp(role, "read"))
			roles |= ROLE_READ;
		else if (!strcmp(role, "submit"))
			roles |= ROLE_SUBMIT;
		else if (!strcmp(role, "admin"))
			roles |= ROLE_ADMIN;
		else
			return 0;
	}
	return roles;
}

/* The hash is not told: whoever sees it could try passwords. */
static int check_token(struct config *c, const struct option *o, char *value,
		       const struct place *at)
{
	struct config_token token = { .roles = 0 };
	char *hash, *roles, *name, *rest = NULL;
	unsigned int i;

	hash = strtok_r(value, " \t", &rest);
	roles = strtok_r(NULL, " \t", &rest);
	name = strtok_r(NULL, " \t", &rest);
	if (!hash || strlen(hash) != 64 || !parse_hex(hash, token.sha256, sizeof(token.sha256)))
		return wrong(at, o->name, "must begin with a SHA-256, 64 hexadecimal digits");
	if (roles)
		token.roles = parse_roles(roles);
	if (!token.roles)
		return wrong(at, o->name,
			     "needs roles of read, submit and admin, as \"read,submit\"");
	if (name && (strlen(name) > MAX_NAME || name[strspn(name, WORD_CHARS)]))
		return wrong(at, o->name, NAME_RULE, quoted(name), MAX_NAME);
	if (strtok_r(NULL, " \t", &rest))
		return wrong(at, o->name, "nothing may follow the name");
	for (i = 0; i < c->nr_tokens; i++)
		if (!memcmp(c->tokens[i].sha256, token.sha256, sizeof(token.sha256)))
			return wrong(at, o->name, "is there already");
	if (c->nr_tokens == CONFIG_MAX_TOKENS)
		return wrong(at, o->name, "there are more than %d", CONFIG_MAX_TOKENS);
	token.name = xstrdup(name ? name : "");
	c->tokens[c->nr_tokens++] = token;
	return 0;
}

static int parse_token(struct config *c, const struct option *o, const char *value,
		       const struct place *at)
{
	char *copy = xstrdup(value);
	int error = check_token(c, o, copy, at);

	free(copy);
	return error;
}

static bool parse_network(const char *text, struct config_allow *allow)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	const char *slash = strchr(text, '/');
	char host[INET6_ADDRSTRLEN];
	uint64_t bits;
	size_t len;

	if (!slash || !parse_digits(slash + 1, 128, &bits))
		return false;
	len = (size_t)(slash - text);
	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	allow->bits = (unsigned int)bits;
	if (inet_pton(AF_INET6, host, allow->address) == 1)
		return true;
	if (bits > 32 || inet_pton(AF_INET, host, allow->address + 12) != 1)
		return false;
	memcpy(allow->address, mapped, sizeof(mapped));
	allow->bits += 96;
	return true;
}

/* Whether what is behind the bits that count is zero. */
static bool is_network(const struct config_allow *allow)
{
	unsigned int bit;

	for (bit = allow->bits; bit < 128; bit++)
		if (allow->address[bit / 8] & 0x80 >> bit % 8)
			return false;
	return true;
}

static int parse_allow(struct config *c, const struct option *o, const char *value,
		       const struct place *at)
{
	struct config_allow allow;

	if (!parse_network(value, &allow))
		return wrong(at, o->name, "%s is not ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8",
			     quoted(value));
	if (!is_network(&allow))
		return wrong(at, o->name, "%s: the address has bits behind those that count",
			     quoted(value));
	if (c->nr_allow == CONFIG_MAX_ALLOW)
		return wrong(at, o->name, "there are more than %d", CONFIG_MAX_ALLOW);
	c->allow[c->nr_allow++] = allow;
	return 0;
}

/* It may have a password: it is not told. */
static int parse_amqp(struct config *c, const struct option *o, const char *value,
		      const struct place *at)
{
	struct amqp_connection_info parts;
	char *copy = xstrdup(value);
	bool is_good = strlen(value) <= MAX_AMQP && !amqp_parse_url(copy, &parts) && *parts.host;

	free(copy);
	if (!is_good)
		return wrong(at, o->name,
			     "must be a URL such as amqp://user@host:5672/vhost, with amqps for TLS");
	if (c->nr_amqp == CONFIG_MAX_AMQP)
		return wrong(at, o->name, "there are more than %d", CONFIG_MAX_AMQP);
	c->amqp[c->nr_amqp++] = xstrdup(value);
	return 0;
}

static int parse_path(struct config *c, const struct option *o, const char *value,
		      const struct place *at)
{
	if (*value && *value != '/')
		return wrong(at, o->name, "%s does not begin with \"/\"", quoted(value));
	set_text(c, o, value);
	return 0;
}

#define TEXT(field, value) \
	{ .name = #field, .parse = parse_##field, .offset = offsetof(struct config, field), \
	  .initial = (value) }
#define PATH(field, value) \
	{ .name = #field, .parse = parse_path, .offset = offsetof(struct config, field), \
	  .initial = (value) }
#define NUMBER(field, value, least, most) \
	{ .name = #field, .parse = parse_number, .offset = offsetof(struct config, field), \
	  .initial = (value), .min = (least), .max = (most) }
#define LIST(field) { .name = #field, .parse = parse_##field, .list = true }

/* So many jobs and what a node needs besides have room in a device as it is by default. */
static const struct option options[] = {
	TEXT(database, ""),
	TEXT(name, NULL),
	TEXT(url, ""),
	TEXT(listen, "127.0.0.1:8740"),
	LIST(token),
	LIST(allow),
	LIST(amqp),
	PATH(amqp_password_file, ""),
	PATH(amqp_ca, "/etc/ssl/certs/ca-certificates.crt"),
	NUMBER(poll_ms, "5000", 10, 60000),
	NUMBER(max_in_memory, "2000000", 1, 16000000),
	NUMBER(submit_group_us, "2000", 0, 1000000),
	NUMBER(keep_days, "30", 1, 3650),
	NUMBER(max_waiting, "0", 0, 1000000000000),
	NUMBER(drain_ms, "10000", 0, 3600000),
	TEXT(backend, "auto"),
	TEXT(log_level, "info"),
};

#define NR_OPTIONS	ARRAY_SIZE(options)

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		end--;
	*end = '\0';
	return text;
}

static int set(struct config *c, const char *name, const char *value, const struct place *at,
	       uint64_t *said)
{
	struct config unused = { 0 };
	size_t i;
	int error;

	for (i = 0; i < NR_OPTIONS && strcmp(options[i].name, name); i++)
		;
	if (i == NR_OPTIONS)
		return wrong(at, NULL, "%s is not the name of an option", quoted(name));
	if (!options[i].list && *said >> i & 1)
		return wrong(at, name, "is set twice");
	*said |= UINT64_C(1) << i;
	/* What the command line said stays, but the file has to be right too. */
	if (options[i].list || said == &c->forced || !(c->forced >> i & 1))
		return options[i].parse(c, &options[i], value, at);
	error = options[i].parse(&unused, &options[i], value, at);
	config_free(&unused);
	return error;
}

/* "name = value"; changes @text. */
static int assign(struct config *c, char *text, const struct place *at, uint64_t *said)
{
	char *equals = strchr(text, '=');

	if (!equals)
		return wrong(at, NULL, "%s is no \"name = value\"", quoted(trim(text)));
	*equals = '\0';
	return set(c, trim(text), trim(equals + 1), at, said);
}

int config_set(struct config *c, const char *assignment)
{
	const struct place at = { .path = "-o" };
	char *copy = xstrdup(assignment);
	int error = assign(c, copy, &at, &c->forced);

	free(copy);
	return error;
}

static void cut_comment(char *line)
{
	char *hash;

	for (hash = strchr(line, '#'); hash; hash = strchr(hash + 1, '#')) {
		if (hash == line || hash[-1] == ' ' || hash[-1] == '\t') {
			*hash = '\0';
			return;
		}
	}
}

static int read_line(struct config *c, char *line, size_t len, const struct place *at)
{
	if (len > MAX_LINE)
		return wrong(at, NULL, "the line is longer than %d", MAX_LINE);
	if (strlen(line) != len)
		return wrong(at, NULL, "there is a NUL in the line");
	cut_comment(line);
	line = trim(line);
	return *line ? assign(c, line, at, &c->said) : 0;
}

static int read_file(struct config *c, const char *path)
{
	struct place at = { .path = path };
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int error = 0;

	if (!f)
		return wrong(&at, NULL, "%s", strerror(errno));
	/* All that is wrong is told at once. */
	while ((len = getline(&line, &room, f)) >= 0) {
		at.line++;
		error |= read_line(c, line, (size_t)len, &at);
	}
	at.line = 0;
	if (ferror(f))
		error = wrong(&at, NULL, "%s", strerror(errno));
	free(line);
	fclose(f);
	return error;
}

/* The host's, with what may not be in it replaced. */
static void default_name(struct config *c)
{
	char name[MAX_NAME + 1], *p;

	if (gethostname(name, sizeof(name)) || !*name)
		strcpy(name, "twheeld");
	name[MAX_NAME] = '\0';
	for (p = name; *p; p++)
		if (!strchr(WORD_CHARS, *p))
			*p = '-';
	c->name = xstrdup(name);
}

static void defaults(struct config *c)
{
	static const struct place at = { .path = "default" };
	size_t i;

	for (i = 0; i < NR_OPTIONS; i++)
		if (options[i].initial && !((c->forced | c->said) >> i & 1))
			options[i].parse(c, &options[i], options[i].initial, &at);
	if (!c->name)
		default_name(c);
}

/* Without a token everything that comes in may do all. */
static int check_listen(const struct config *c, const char *path)
{
	const struct place at = { .path = path ? path : "-o" };
	struct sockaddr_storage address;

	if (!strcmp(c->listen, "none") || c->nr_tokens)
		return 0;
	if (config_address(c->listen, &address) && is_loopback(&address))
		return 0;
	return wrong(&at, "listen", "%s is not on loopback: that needs a token", quoted(c->listen));
}

int config_read(struct config *c, const char *path)
{
	if (path && read_file(c, path))
		return -1;
	defaults(c);
	return check_listen(c, path);
}

void config_free(struct config *c)
{
	unsigned int i;

	free(c->database);
	free(c->name);
	free(c->url);
	free(c->listen);
	free(c->backend);
	free(c->log_level);
	free(c->amqp_password_file);
	free(c->amqp_ca);
	for (i = 0; i < c->nr_amqp; i++)
		free(c->amqp[i]);
	for (i = 0; i < c->nr_tokens; i++)
		free(c->tokens[i].name);
	memset(c, 0, sizeof(*c));
}

int config_backend(const struct config *c)
{
	if (!strcmp(c->backend, "device"))
		return TWHEEL_DEVICE;
	return strcmp(c->backend, "local") ? TWHEEL_AUTO : TWHEEL_LOCAL;
}

int config_log_level(const struct config *c)
{
	int i = 0;

	while (strcmp(log_levels[i], c->log_level))
		i++;
	return LOG_E + i;
}

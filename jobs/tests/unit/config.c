// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tap.h"
#include "buf.h"
#include "config.h"
#include "log.h"

#define HASH	"00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff"
#define OTHER	"10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define NO_HEX	"g0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char dir[] = "/tmp/twheeld-config-XXXXXX";
static char path[64], said_path[64];
static char said[8192];
static int real_stderr;

static void listen_to_stderr(void)
{
	int fd = open(said_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		exit(1);
	close(fd);
}

static void leave_stderr(void)
{
	FILE *f = fopen(said_path, "r");
	size_t len = f ? fread(said, 1, sizeof(said) - 1, f) : 0;

	said[len] = '\0';
	if (f)
		fclose(f);
	dup2(real_stderr, STDERR_FILENO);
}

static int read_bytes(struct config *c, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");
	int error;

	if (!f || fwrite(text, 1, len, f) != len || fclose(f))
		exit(1);
	listen_to_stderr();
	error = config_read(c, path);
	leave_stderr();
	return error;
}

static int set(struct config *c, const char *assignment)
{
	int error;

	listen_to_stderr();
	error = config_set(c, assignment);
	leave_stderr();
	return error;
}

static bool is_right(const char *text)
{
	struct config c = { 0 };
	bool right = !read_bytes(&c, text, strlen(text));

	config_free(&c);
	return right && !*said;
}

static bool is_wrong_bytes(const char *text, size_t len, int line, const char *message)
{
	struct config c = { 0 };
	char where[80];
	bool wrong = read_bytes(&c, text, len) == -1;

	config_free(&c);
	snprintf(where, sizeof(where), line ? "%s:%d: " : "%s: ", path, line);
	if (wrong && !strncmp(said, where, strlen(where)) && strstr(said, message))
		return true;
	printf("# said: %s\n", said);
	return false;
}

static bool is_wrong(const char *text, int line, const char *message)
{
	return is_wrong_bytes(text, strlen(text), line, message);
}

static void files(void)
{
	struct config c = { 0 };

	ok(!config_read(&c, NULL) && !*c.database && !strcmp(c.listen, "127.0.0.1:8740") &&
	   c.poll_ms == 5000 && c.max_in_memory == 2000000 && c.submit_group_us == 2000 &&
	   c.keep_days == 30 && !c.max_waiting && c.drain_ms == 10000 && *c.name &&
	   !strcmp(c.backend, "auto") && !c.nr_tokens && !c.nr_allow,
	   "without a file there are the defaults");
	ok(config_log_level(&c) == LOG_I, "the level of the log is info by default");
	config_free(&c);

	ok(is_right(""), "an empty file is right");
	ok(is_right("\n  # only this\n#\n\tpoll_ms=10\r\n drain_ms = 7 # so long"),
	   "blanks and comments do not matter");
	read_bytes(&c, "database = dbname=a#b  # why\n", 29);
	ok(!strcmp(c.database, "dbname=a#b"), "a number sign inside of a word is no comment");
	config_free(&c);
	ok(is_wrong("\npoll_ms\n", 2, "is no \"name = value\""), "a line without a value is told");
	ok(is_wrong("Poll_ms = 1\n", 1, "is not the name of an option"), "an unknown name is told");
	ok(is_wrong(" = 1\n", 1, "is not the name of an option"), "a missing name is told");
	ok(is_wrong("poll_ms = 10\npoll_ms = 10\n", 2, "set twice"),
	   "a name that is set twice is told");
	ok(is_wrong("poll_ms = 1\nkeep_days = 0\n", 1, ":2: keep_days"),
	   "all wrong lines are told");
	ok(is_wrong_bytes("name = a\0b\n", 11, 1, "NUL"), "a NUL is told");
}

static void long_line(void)
{
	struct buf b = { 0 };

	buf_puts(&b, "database = ");
	while (b.len < 5000)
		buf_puts(&b, "dbname=x ");
	ok(is_wrong(b.data, 1, "longer than 4096"), "a line that is too long is told");
	buf_free(&b);
}

static void missing_file(void)
{
	struct config c = { 0 };
	int error;

	listen_to_stderr();
	error = config_read(&c, "/nowhere/at/all");
	leave_stderr();
	ok(error == -1 && !strcmp(said, "/nowhere/at/all: No such file or directory\n"),
	   "a file that is not there is told");
	config_free(&c);
}

static void numbers(void)
{
	static const struct {
		const char *name, *below, *least, *most, *above;
	} bounds[] = {
		{ "poll_ms", "9", "10", "60000", "60001" },
		{ "max_in_memory", "0", "1", "16000000", "16000001" },
		{ "submit_group_us", "-1", "0", "1000000", "1000001" },
		{ "keep_days", "0", "1", "3650", "3651" },
		{ "max_waiting", "-1", "0", "1000000000000", "1000000000001" },
		{ "drain_ms", "-1", "0", "3600000", "3600001" },
	};
	static const char *const wrong[] = {
		"", "x", "10x", "+10", "0x10", "1e3", "10.5", "99999999999999999999", "1 0",
	};
	char line[80], sentence[80];
	bool good = true;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bounds); i++) {
		snprintf(line, sizeof(line), "%s = %s", bounds[i].name, bounds[i].below);
		good = is_wrong(line, 1, "is not a whole number from");
		snprintf(line, sizeof(line), "%s = %s", bounds[i].name, bounds[i].above);
		good &= is_wrong(line, 1, "is not a whole number from");
		snprintf(line, sizeof(line), "%s = %s", bounds[i].name, bounds[i].least);
		good &= is_right(line);
		snprintf(line, sizeof(line), "%s = %s", bounds[i].name, bounds[i].most);
		good &= is_right(line);
		snprintf(sentence, sizeof(sentence), "%s has bounds", bounds[i].name);
		ok(good, sentence);
	}
	good = true;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		snprintf(line, sizeof(line), "poll_ms = %s", wrong[i]);
		good &= is_wrong(line, 1, "poll_ms: ");
	}
	ok(good, "what is no number is told");
}

static void texts(void)
{
	ok(is_wrong("database = host=a password=secret dbname\n", 1, "connection string") &&
	   !strstr(said, "secret"), "a wrong connection string is told without its password");
	ok(is_wrong("database = nix=1\n", 1, "database: "), "an unknown word of libpq is told");
	ok(is_right("database = postgresql://u@h/db\n"), "a connection may be a URI");
	ok(is_wrong("name = a b\n", 1, "name: ") && is_wrong("name =\n", 1, "name: "),
	   "a name with a blank, or an empty one, is told");
	ok(is_wrong("url = ftp://a\n", 1, "url: ") && is_wrong("url = http://\n", 1, "url: ") &&
	   is_wrong("url = http://a b\n", 1, "url: ") && is_right("url = https://a:1/x\n"),
	   "a URL is http or https");
	ok(is_wrong("backend = x\n", 1, "auto device local") &&
	   is_wrong("backend = auto device\n", 1, "not one of") &&
	   is_wrong("backend =\n", 1, "not one of") && is_right("backend = device\n"),
	   "a back end is one of three");
	ok(is_wrong("log_level = trace\n", 1, "not one of") && is_right("log_level = debug\n"),
	   "a level of the log is one of five");
}

static void addresses(void)
{
	struct sockaddr_storage a;

	ok(config_address("127.0.0.1:8740", &a) && a.ss_family == AF_INET &&
	   ((struct sockaddr_in *)&a)->sin_port == htons(8740), "an address of IPv4 has a port");
	ok(config_address("[::1]:1", &a) && a.ss_family == AF_INET6,
	   "an address of IPv6 is in brackets");
	ok(is_wrong("listen = localhost:1\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen = 127.0.0.1\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen = 127.0.0.1:0\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen = 127.0.0.1:65536\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen = ::1:80\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen = [::1:80\n", 1, "ADDRESS:PORT") &&
	   is_wrong("listen =\n", 1, "ADDRESS:PORT"), "what is no address to listen on is told");
	ok(is_wrong("listen = 0.0.0.0:80\n", 0, "needs a token") &&
	   is_wrong("listen = [::]:80\n", 0, "needs a token"),
	   "to listen beyond loopback without a token is refused");
	ok(is_right("listen = 0.0.0.0:80\ntoken = " HASH " read\n"), "with a token it is not");
	ok(is_right("listen = none\n") && is_right("listen = 127.1.2.3:80\n") &&
	   is_right("listen = [::1]:80\n"), "loopback needs no token");
}

static void tokens(void)
{
	struct config c = { 0 };
	const char *text = "token = " HASH " submit,read  app-1\ntoken=" OTHER " admin\n";
	char many[100 * (sizeof(HASH) + 16)], *to = many;
	int i;

	ok(!read_bytes(&c, text, strlen(text)) && c.nr_tokens == 2 &&
	   c.tokens[0].roles == (ROLE_READ | ROLE_SUBMIT) && c.tokens[1].roles == ROLE_ADMIN &&
	   !strcmp(c.tokens[0].name, "app-1") && !*c.tokens[1].name &&
	   c.tokens[0].sha256[1] == 0x11 && c.tokens[0].sha256[31] == 0xff,
	   "tokens have a hash, roles and a name");
	config_free(&c);
	ok(is_wrong("token = " HASH "\n", 1, "needs roles") &&
	   is_wrong("token = " HASH " read,\n", 1, "needs roles") &&
	   is_wrong("token = " HASH " root\n", 1, "needs roles"), "a wrong role is told");
	ok(is_wrong("token = 0" HASH " read\n", 1, "64 hexadecimal") &&
	   is_wrong("token = x" OTHER " read\n", 1, "64 hexadecimal") &&
	   is_wrong("token = " NO_HEX " read\n", 1, "64 hexadecimal") &&
	   is_wrong("token = 00 read\n", 1, "64 hexadecimal") && is_wrong("token =\n", 1, "64 hex"),
	   "a wrong hash is told");
	ok(!strstr(said, "0011"), "and is not repeated");
	ok(is_wrong("token = " HASH " read a b\n", 1, "nothing may follow") &&
	   is_wrong("token = " HASH " read a\x01\n", 1, "letters"),
	   "a wrong name of a token is told");
	ok(is_wrong("token = " HASH " read\ntoken = " HASH " admin\n", 2, "is there already"),
	   "a token that is there twice is told");
	for (i = 0; i < 65; i++)
		to += sprintf(to, "token = %062d%02x read\n", 0, i);
	ok(is_wrong(many, 65, "more than 64"), "too many tokens are told");
}

static void networks(void)
{
	static const unsigned char ten[16] = { [10] = 0xff, 0xff, 10 };
	const char *text = "allow = 10.0.0.0/8\nallow = fd00::/8\nallow = 0.0.0.0/0\n";
	struct config c = { 0 };
	char many[65 * 24], *to = many;
	int i;

	ok(!read_bytes(&c, text, strlen(text)) && c.nr_allow == 3 && c.allow[0].bits == 104 &&
	   !memcmp(c.allow[0].address, ten, 16) && c.allow[1].bits == 8 &&
	   c.allow[1].address[0] == 0xfd && c.allow[2].bits == 96, "networks of IPv4 are mapped");
	config_free(&c);
	ok(is_wrong("allow = 10.0.0.0\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = 10.0.0.0/33\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = fd00::/129\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = 10.0.0/8\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = example.org/8\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = /8\n", 1, "ADDRESS/BITS") &&
	   is_wrong("allow = 10.0.0.0/\n", 1, "ADDRESS/BITS"), "what is no network is told");
	ok(is_right("amqp = amqp://host\namqp = amqps://u:p@[::1]:5671/%2f\namqp_ca = /a\n"),
	   "brokers are URLs");
	ok(is_wrong("amqp = http://h\n", 1, "amqp://") &&
	   is_wrong("amqp = amqp://u:secret@h:x\n", 1, "amqp://") && !strstr(said, "secret"),
	   "a wrong URL of a broker is told without its password");
	ok(is_wrong("amqp_password_file = password\n", 1, "does not begin with"),
	   "the file of a password has a full path");
	ok(is_wrong("allow = 10.0.0.1/8\n", 1, "bits behind") && is_right("allow = 10.0.0.1/32\n"),
	   "an address in the place of a network is told");
	for (i = 0; i < 65; i++)
		to += sprintf(to, "allow = 10.0.0.%d/32\n", i);
	ok(is_wrong(many, 65, "more than 64"), "too many networks are told");
}

static void command_line(void)
{
	struct config c = { 0 };
	const char *text = "poll_ms = 200\nkeep_days = 3\n";

	ok(!set(&c, "poll_ms=100") && !read_bytes(&c, text, strlen(text)) && c.poll_ms == 100 &&
	   c.keep_days == 3, "the command line goes before the file");
	config_free(&c);
	set(&c, "poll_ms=100");
	ok(read_bytes(&c, "poll_ms = x\n", 12) == -1, "what it goes before has to be right too");
	config_free(&c);
	ok(set(&c, "poll_ms=1") == -1 && !strncmp(said, "-o: poll_ms: ", 13),
	   "what is wrong on the command line is told");
	config_free(&c);
	set(&c, "poll_ms=100");
	ok(set(&c, "poll_ms=101") == -1 && strstr(said, "twice"), "nothing is set twice there");
	config_free(&c);
	set(&c, "allow=10.0.0.0/8");
	ok(!read_bytes(&c, "allow = 11.0.0.0/8\n", 19) && c.nr_allow == 2,
	   "networks of both are allowed");
	config_free(&c);
	set(&c, "listen=0.0.0.0:80");
	listen_to_stderr();
	ok(config_read(&c, NULL) == -1, "a token is needed without a file too");
	leave_stderr();
	config_free(&c);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/conf", dir);
	snprintf(said_path, sizeof(said_path), "%s/said", dir);
	real_stderr = dup(STDERR_FILENO);
	files();
	long_line();
	missing_file();
	numbers();
	texts();
	addresses();
	tokens();
	networks();
	command_line();
	unlink(path);
	unlink(said_path);
	rmdir(dir);
	return done_testing();
}

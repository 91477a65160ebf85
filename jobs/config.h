/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What twheeld.conf(5) says: "name = value" lines; "#" at the beginning of a line or after a
 * blank begins a comment. A line that is wrong is told with its number, and nothing starts.
 */
#ifndef TWHEELD_CONFIG_H
#define TWHEELD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define CONFIG_MAX_TOKENS	64
#define CONFIG_MAX_ALLOW	64
#define CONFIG_MAX_AMQP		8

enum config_role { ROLE_READ = 1, ROLE_SUBMIT = 2, ROLE_ADMIN = 4 };

/** struct config_token - "token = SHA256-IN-HEX ROLE[,ROLE...] [NAME]" */
struct config_token {
	unsigned char sha256[32];
	unsigned int roles;
	char *name;
};

/** struct config_allow - "allow = ADDRESS/BITS": where callbacks may go. IPv4 is mapped */
struct config_allow {
	unsigned char address[16];
	unsigned int bits;
};

struct config {
	char *database;		/* conninfo of libpq, as it is */
	char *name;		/* of the node, for people; the host's if not said */
	char *url;		/* where others reach its HTTP, for people */
	char *listen;		/* ADDRESS:PORT, 127.0.0.1:8740; "none" for no HTTP */
	struct config_token tokens[CONFIG_MAX_TOKENS];
	unsigned int nr_tokens;	/* without one everything on loopback may do all */
	struct config_allow allow[CONFIG_MAX_ALLOW];
	unsigned int nr_allow;	/* without one loopback alone */
	char *amqp[CONFIG_MAX_AMQP];	/* brokers of one cluster, which are tried in turn */
	unsigned int nr_amqp;
	char *amqp_password_file;	/* instead of the password in these */
	char *amqp_ca;		/* who may sign the certificate of a broker */
	uint64_t poll_ms;	/* how often an owner looks for jobs without being told: 5000 */
	uint64_t max_in_memory;	/* jobs: 2000000 */
	uint64_t submit_group_us;	/* submits wait so long for others: 2000 */
	uint64_t keep_days;	/* of the logs: 30 */
	uint64_t max_waiting;	/* jobs of the cluster: beyond that 429; 0 for no bound */
	uint64_t drain_ms;	/* for calls that are under way when it is to stop: 10000 */
	char *backend;		/* of libtwheel: auto, device, local */
	char *log_level;	/* error, warning, notice, info, debug */

	uint64_t said;		/* config.c's: which were said by the command line, or the file */
	uint64_t forced;
};

/*
 * Begins with what config_set() has left, or zeroes. 0, or -1 after it was told on stderr what is
 * wrong. @path may be NULL: defaults.
 */
int config_read(struct config *c, const char *path);

/*
 * "name=value" of the command line, which goes before the file: tokens and addresses are besides
 * those of the file. Called before config_read(), on a struct that began zeroed.
 */
int config_set(struct config *c, const char *assignment);
void config_free(struct config *c);

/* "ADDRESS:PORT", of IPv6 "[ADDRESS]:PORT". */
bool config_address(const char *text, struct sockaddr_storage *address);

/* For twheel_open(): enum twheel_backend of @backend, which has been checked. */
int config_backend(const struct config *c);

/* The number of log.h for @log_level, which has been checked. */
int config_log_level(const struct config *c);

#endif

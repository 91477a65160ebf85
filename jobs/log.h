/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One line an event, on stderr: "<6>event key=value ...", with the level as systemd takes it if
 * it listens, or else with the time. What comes from outside is quoted.
 */
#ifndef TWHEELD_LOG_H
#define TWHEELD_LOG_H

enum { LOG_E = 3, LOG_W = 4, LOG_N = 5, LOG_I = 6, LOG_D = 7 };

extern int log_level;	/* what is above is not told */

void log_at(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)	log_at(LOG_E, __VA_ARGS__)
#define log_warn(...)	log_at(LOG_W, __VA_ARGS__)
#define log_note(...)	log_at(LOG_N, __VA_ARGS__)
#define log_info(...)	log_at(LOG_I, __VA_ARGS__)
#define log_debug(...)	log_at(LOG_D, __VA_ARGS__)

/*
 * A text as it can stand in a line: in quotes if it has to be, cut if it is long. One of eight
 * buffers that take turns.
 */
const char *quoted(const char *text);

#endif

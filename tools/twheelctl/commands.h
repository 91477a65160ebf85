/* SPDX-License-Identifier: GPL-2.0 */
/* The commands of twheelctl; each returns an exit code */
#ifndef TWHEELCTL_COMMANDS_H
#define TWHEELCTL_COMMANDS_H

#include "run.h"

int show_info(const struct options *opt);
int arm_one(struct options *opt, const char *delay);
int run_file(struct options *opt, const char *path);
int show_top(const struct options *opt);
int examine(const struct options *opt);
int plot_file(const struct options *opt, const char *path);

/* NULL, or what is wrong with it */
const char *parse_sort(const char *s, unsigned char *key);

/* Says what is wrong with the command line */
int usage_error(const char *what, const char *why, const char *text);

#endif /* TWHEELCTL_COMMANDS_H */

/* SPDX-License-Identifier: GPL-2.0 */
/* What twjob's commands do; each returns the exit status, or ends twjob. */
#ifndef TWJOB_COMMANDS_H
#define TWJOB_COMMANDS_H

#include "twjob.h"

int cmd_submit(const struct options *opt, int nr, char **args);
int cmd_cancel(const struct options *opt, int nr, char **ids);
int cmd_move(const struct options *opt, const char *id);
int cmd_ls(const struct options *opt);
int cmd_show(const struct options *opt, const char *id);
int cmd_service_set(const struct options *opt, int nr, char **args);
int cmd_service_ls(const struct options *opt);
int cmd_service_pause(const struct options *opt, const char *name, bool paused);
int cmd_service_rm(const struct options *opt, const char *name);
int cmd_schedule_put(const struct options *opt, int nr, char **args);
int cmd_schedule_ls(const struct options *opt);
int cmd_schedule_show(const struct options *opt, const char *name);
int cmd_schedule_rm(const struct options *opt, const char *name);
int cmd_schedule_pause(const struct options *opt, const char *name, bool paused);
int cmd_schedule_run(const struct options *opt, const char *name);
int cmd_schedule_apply(const struct options *opt, const char *file);
int cmd_dead_ls(const struct options *opt, const char *service);
int cmd_dead_requeue(const struct options *opt, int nr, char **ids);
int cmd_dead_requeue_all(const struct options *opt, const char *service);
int cmd_nodes(const struct options *opt);
int cmd_drain(const struct options *opt, const char *node);
int cmd_rehearse(const struct options *opt, int nr, char **files);

#endif

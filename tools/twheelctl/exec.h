/* SPDX-License-Identifier: GPL-2.0 */
/* The command of --exec, once for each record */
#ifndef TWHEELCTL_EXEC_H
#define TWHEELCTL_EXEC_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <linux/twheel.h>

#include "parse.h"

/* Further records wait in the kernel until one of these has ended */
#define EXEC_MAX	64

/**
 * struct exec - the commands of one run
 * @command: for the shell
 * @mask:    signals that are blocked in commands
 * @running: those that have not ended; a pid of 0 is a free place
 * @nr:      how many these are
 * @started: how many were
 * @failed:  how many could not be started, or ended with another status than 0
 */
struct exec {
	const char *command;
	const sigset_t *mask;
	struct {
		pid_t pid;
		const char *label;
	} running[EXEC_MAX];
	unsigned int nr;
	__u64 started;
	__u64 failed;
};

/* There must be room. @spec outlives the command */
void exec_start(struct exec *x, const struct timer_spec *spec,
		const struct twheel_event *ev);

/* Takes note of those that have ended, and tells on stderr which failed */
void exec_reap(struct exec *x);

/* Waits until fewer than @nr run, or *@stop is set by a handler */
void exec_wait(struct exec *x, unsigned int nr, const atomic_int *stop);

#endif /* TWHEELCTL_EXEC_H */

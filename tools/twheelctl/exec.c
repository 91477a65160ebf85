// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec.h"

static void set_number(const char *name, long long val)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", val);
	setenv(name, text, 1);
}

static void set_environment(const struct timer_spec *spec, const struct twheel_event *ev)
{
	setenv("TWHEEL_LABEL", spec->label, 1);
	set_number("TWHEEL_LINE", spec->line);
	set_number("TWHEEL_EXPIRES_NS", (long long)ev->expires_ns);
	set_number("TWHEEL_FIRED_NS", (long long)ev->fired_ns);
	set_number("TWHEEL_LATE_NS", (long long)(ev->fired_ns - ev->expires_ns));
	set_number("TWHEEL_EXPIRIES", 1LL + ev->overrun);
}

/* Returns 0 or an errno. The handlers of this program are not for the command */
static int spawn(const struct exec *x, pid_t *pid)
{
	char * const argv[] = { "sh", "-c", (char *)x->command, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int err;

	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return err;
	err = posix_spawnattr_init(&attr);
	if (err)
		goto out_actions;
	err = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, _PATH_DEVNULL,
					       O_RDONLY, 0);
	if (!err)
		err = posix_spawnattr_setsigmask(&attr, x->mask);
	if (!err)
		err = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	if (!err)
		err = posix_spawn(pid, _PATH_BSHELL, &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
out_actions:
	posix_spawn_file_actions_destroy(&actions);
	return err;
}

void exec_start(struct exec *x, const struct timer_spec *spec,
		const struct twheel_event *ev)
{
	unsigned int i = 0;
	pid_t pid;
	int err;

	while (x->running[i].pid)
		i++;
	set_environment(spec, ev);
	fflush(stdout);
	x->started++;
	err = spawn(x, &pid);
	if (err) {
		x->failed++;
		fprintf(stderr, "twheelctl: '%s': cannot run the command: %s\n",
			spec->label, strerror(err));
		return;
	}
	x->running[i].pid = pid;
	x->running[i].label = spec->label;
	x->nr++;
}

static void note_end(struct exec *x, pid_t pid, int status)
{
	unsigned int i;

	for (i = 0; i < EXEC_MAX && x->running[i].pid != pid;)
		i++;
	if (i == EXEC_MAX)	/* a child of who was this process before execve() */
		return;
	x->running[i].pid = 0;
	x->nr--;
	if (!status)
		return;
	x->failed++;
	if (WIFSIGNALED(status))
		fprintf(stderr, "twheelctl: '%s': the command was killed by signal %d\n",
			x->running[i].label, WTERMSIG(status));
	else
		fprintf(stderr, "twheelctl: '%s': the command ended with status %d\n",
			x->running[i].label, WEXITSTATUS(status));
}

void exec_reap(struct exec *x)
{
	int status;
	pid_t pid;

	while (x->nr) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid <= 0)
			return;
		note_end(x, pid, status);
	}
}

/* A time-out, as on the manual clock a signal may come just before it sleeps */
void exec_wait(struct exec *x, unsigned int nr, const atomic_int *stop)
{
	const struct timespec ts = { .tv_nsec = 100000000 };

	for (exec_reap(x); x->nr >= nr && !*stop; exec_reap(x))
		ppoll(NULL, 0, &ts, x->mask);
}

/* SPDX-License-Identifier: GPL-2.0 */
/* What the linker puts in the place of the C library, and the latter */
#ifndef TWHEELCTL_FAKE_H
#define TWHEELCTL_FAKE_H

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
ssize_t __real_read(int fd, void *buf, size_t len);
int __real_ppoll(struct pollfd *pfd, nfds_t nr, const struct timespec *ts,
		 const sigset_t *mask);

int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long cmd, ...);
ssize_t __wrap_read(int fd, void *buf, size_t len);
int __wrap_ppoll(struct pollfd *pfd, nfds_t nr, const struct timespec *ts,
		 const sigset_t *mask);

#endif /* TWHEELCTL_FAKE_H */

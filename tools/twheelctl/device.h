/* SPDX-License-Identifier: GPL-2.0 */
/* The calls of /dev/twheel; each says on stderr why it failed */
#ifndef TWHEELCTL_DEVICE_H
#define TWHEELCTL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/twheel.h>

int device_open(const char *path);
int device_info(int fd, struct twheel_info *info);
int device_setup(int fd, struct twheel_setup *setup);
int device_next(int fd, __u64 *expires_ns);
int device_advance(int fd, __u64 to_ns);

/* Looks up a line of /proc/self/fdinfo; false if there is none */
bool device_counter(int fd, const char *key, __u64 *val);

#endif /* TWHEELCTL_DEVICE_H */

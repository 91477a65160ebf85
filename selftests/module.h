/* SPDX-License-Identifier: GPL-2.0 */
/* Loads the module anew, from TWHEEL_KO or /twheel.ko. */
#ifndef TWHEEL_MODULE_H
#define TWHEEL_MODULE_H

#include "twheel_test.h"

/* 0, or a negative errno: -EWOULDBLOCK while a wheel is open */
static inline long module_unload(void)
{
	return syscall(SYS_delete_module, "twheel", O_NONBLOCK) ? -errno : 0;
}

static inline int module_open(void)
{
	const char *path = getenv("TWHEEL_KO");

	return open(path ? path : "/twheel.ko", O_RDONLY | O_CLOEXEC);
}

static inline bool module_load(int ko, const char *params)
{
	return !syscall(SYS_finit_module, ko, params, 0);
}

#endif /* TWHEEL_MODULE_H */

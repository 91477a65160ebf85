/* SPDX-License-Identifier: GPL-2.0 */
/* The device /dev/twheel: each open of it is one engine. */
#ifndef TWHEEL_DEV_H
#define TWHEEL_DEV_H

#include <linux/types.h>

/* Module parameters, in main.c. */
extern unsigned int tw_capacity;
extern unsigned int tw_capacity_max;

int tw_dev_register(void);
void tw_dev_unregister(void);

#endif /* TWHEEL_DEV_H */

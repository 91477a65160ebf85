/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A wheel in a loop of libev */
#ifndef TWHEEL_EV_H
#define TWHEEL_EV_H

#include <ev.h>
#include <twheel.h>

static inline void twheel_ev_dispatch(EV_P_ ev_io *io, int what)
{
	(void)EV_A;
	(void)what;
	twheel_dispatch((struct twheel *)io->data, 0);
}

/* Starts @io for the wheel. ev_io_stop() ends it, before the wheel. */
static inline void twheel_ev_start(EV_P_ ev_io *io, struct twheel *w)
{
	ev_io_init(io, twheel_ev_dispatch, twheel_fd(w), EV_READ);
	io->data = w;
	ev_io_start(EV_A_ io);
}

#endif /* TWHEEL_EV_H */

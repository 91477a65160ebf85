/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A wheel in a loop of libuv */
#ifndef TWHEEL_UV_H
#define TWHEEL_UV_H

#include <uv.h>
#include <twheel.h>

static inline void twheel_uv_dispatch(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	twheel_dispatch((struct twheel *)poll->data, 0);
}

/* Starts @poll for the wheel: 0 or an error of libuv. uv_close() ends it, before the wheel. */
static inline int twheel_uv_start(uv_loop_t *loop, uv_poll_t *poll, struct twheel *w)
{
	int ret = uv_poll_init(loop, poll, twheel_fd(w));

	poll->data = w;
	return ret ? ret : uv_poll_start(poll, UV_READABLE, twheel_uv_dispatch);
}

#endif /* TWHEEL_UV_H */

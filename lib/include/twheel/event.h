/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A wheel in a loop of libevent */
#ifndef TWHEEL_EVENT_H
#define TWHEEL_EVENT_H

#include <event2/event.h>
#include <twheel.h>

static inline void twheel_event_dispatch(evutil_socket_t fd, short what, void *w)
{
	(void)fd;
	(void)what;
	twheel_dispatch((struct twheel *)w, 0);
}

/* The event of a wheel, added; NULL without memory. event_free() ends it, before the wheel. */
static inline struct event *twheel_event_add(struct event_base *base, struct twheel *w)
{
	struct event *event = event_new(base, twheel_fd(w), EV_READ | EV_PERSIST,
					twheel_event_dispatch, w);

	if (event && event_add(event, NULL)) {
		event_free(event);
		event = NULL;
	}
	return event;
}

#endif /* TWHEEL_EVENT_H */

// SPDX-License-Identifier: MIT
/*
 * ngx_event_timer.c - nginx's timers, on libtwheel
 *
 * This takes the place of src/event/ngx_event_timer.[ch] in nginx 1.22; what else that
 * takes is in "build" beside this, and what comes of it in Documentation/nginx.rst.
 *
 * Each process has a wheel, opened after fork(2). Its descriptor is in the event loop as
 * a connection, like the channel to the master, and that waits without a time-out: it
 * is woken when the wheel has something to do.
 */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

static struct twheel *ngx_event_wheel;
/* The wheel in the event loop; NULL before the first round of that. */
static ngx_connection_t *ngx_event_wheel_connection;
/* Timers that a process which is to exit waits for. */
static ngx_uint_t ngx_event_timers_left;

ngx_int_t ngx_event_timer_init(ngx_log_t *log)
{
	int ret = twheel_open(&ngx_event_wheel, NULL);

	if (ret) {
		ngx_log_error(NGX_LOG_EMERG, log, -ret, "twheel_open() failed");
		return NGX_ERROR;
	}
	ngx_log_error(NGX_LOG_NOTICE, log, 0, "timers are in %s",
		      twheel_is_device(ngx_event_wheel) ? "/dev/twheel" : "the process");
	return NGX_OK;
}

/* There is nothing to do but to have been woken: see ngx_event_expire_timers(). */
static void ngx_event_wheel_handler(ngx_event_t *ev)
{
	ngx_log_debug0(NGX_LOG_DEBUG_EVENT, ev->log, 0, "event timers due");
}

/* When timers are made ready there are neither connections nor an event loop yet. */
static void ngx_event_watch_wheel(void)
{
	ngx_log_t *log = ngx_cycle->log;
	ngx_connection_t *c = ngx_get_connection(twheel_fd(ngx_event_wheel), log);

	if (!c)
		exit(2);	/* which has the master not try it again */
	c->read->log = log;
	c->write->log = log;
	/* Nobody's connection, that is to say. */
	c->read->channel = 1;
	c->write->channel = 1;
	c->read->handler = ngx_event_wheel_handler;
	if (ngx_add_event(c->read, NGX_READ_EVENT, NGX_LEVEL_EVENT) == NGX_ERROR)
		exit(2);
	ngx_event_wheel_connection = c;
}

/* How long the event loop waits: the first time it is to come round at once. */
ngx_msec_t ngx_event_find_timer(void)
{
	return ngx_event_wheel_connection ? NGX_TIMER_INFINITE : 0;
}

void ngx_event_expire_timers(void)
{
	ngx_event_t *ev;
	int ret;

	if (!ngx_event_wheel_connection)
		ngx_event_watch_wheel();
	/* The event loop sets this, whether it calls handlers at once or later. */
	ev = ngx_event_wheel_connection->read;
	if (!ev->ready)
		return;
	ev->ready = 0;
	ret = twheel_dispatch(ngx_event_wheel, 0);
	if (ret < 0)
		ngx_log_error(NGX_LOG_ALERT, ev->log, -ret, "twheel_dispatch() failed");
}

ngx_int_t ngx_event_no_timers_left(void)
{
	return ngx_event_timers_left ? NGX_AGAIN : NGX_OK;
}

static void ngx_event_timer_expired(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	ngx_event_t *ev = TWHEEL_CONTAINER(t, ngx_event_t, timer);

	ngx_log_debug1(NGX_LOG_DEBUG_EVENT, ev->log, 0, "event timer expired: %d",
		       ngx_event_ident(ev->data));
	ngx_event_timers_left -= !ev->cancelable;
	ev->timer_set = 0;
	ev->timedout = 1;
	ev->handler(ev);
}

void ngx_event_add_timer(ngx_event_t *ev, ngx_msec_t timer)
{
	/* From now on, where ngx_current_msec is when this round of the event loop began. */
	uint64_t delay_ns = ngx_min(timer, INT64_MAX / TWHEEL_MSEC) * TWHEEL_MSEC;
	int ret = twheel_arm(ngx_event_wheel, &ev->timer, delay_ns, ngx_event_timer_expired);

	ngx_log_debug2(NGX_LOG_DEBUG_EVENT, ev->log, 0, "event timer add: %d: %M",
		       ngx_event_ident(ev->data), timer);
	if (ret)
		ngx_log_error(NGX_LOG_ALERT, ev->log, -ret, "twheel_arm() failed");
	if (ev->timer_set)
		return;
	if (ret) {
		/* What would wait for ever has waited long enough. */
		ev->timedout = 1;
		ngx_post_event(ev, &ngx_posted_events);
		return;
	}
	ngx_event_timers_left += !ev->cancelable;
	ev->timer_set = 1;
}

void ngx_event_del_timer(ngx_event_t *ev)
{
	ngx_log_debug1(NGX_LOG_DEBUG_EVENT, ev->log, 0, "event timer del: %d",
		       ngx_event_ident(ev->data));
	twheel_cancel(ngx_event_wheel, &ev->timer);
	ngx_event_timers_left -= !ev->cancelable;
	ev->timer_set = 0;
}

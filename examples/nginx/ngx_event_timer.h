/* SPDX-License-Identifier: MIT */
/* nginx's timers, on libtwheel: see ngx_event_timer.c */
#ifndef _NGX_EVENT_TIMER_H_INCLUDED_
#define _NGX_EVENT_TIMER_H_INCLUDED_

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#define NGX_TIMER_INFINITE	((ngx_msec_t)-1)

ngx_int_t ngx_event_timer_init(ngx_log_t *log);
ngx_msec_t ngx_event_find_timer(void);
void ngx_event_expire_timers(void);
ngx_int_t ngx_event_no_timers_left(void);

/* An event that has a timer already has it moved. */
void ngx_event_add_timer(ngx_event_t *ev, ngx_msec_t timer);
/* Of an event whose timer_set is set. */
void ngx_event_del_timer(ngx_event_t *ev);

#endif /* _NGX_EVENT_TIMER_H_INCLUDED_ */

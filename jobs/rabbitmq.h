/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers of librabbitmq, which moved to a directory of their own with 0.12.
 */
#ifndef TWHEELD_RABBITMQ_H
#define TWHEELD_RABBITMQ_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#endif

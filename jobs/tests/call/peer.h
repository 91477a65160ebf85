/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer of calls, in a thread of its own, that does what the path of a request says:
 *
 *   /STATUS       answers with that status and the body "fine"
 *   /raw          answers with the body of the request, byte by byte as it is
 *   /rawclose     the same, and closes the connection
 *   /hang         never answers
 *   /slow         answers 200 after 200 ms
 *   /trickle      a body that never ends, a byte each 10 ms
 *   /trickleheads headers that never end, one each 10 ms
 *   /big          10 MB
 *   /manyheads    10 MB of headers
 *   /close        closes without an answer
 *   /reset        the same with a reset
 *   /stale        answers the first request of a connection, and closes at others
 */
#ifndef TWHEELD_TEST_PEER_H
#define TWHEELD_TEST_PEER_H

#include <stdbool.h>
#include <stddef.h>

/* Listens on a free port of @address, which is returned. */
int peer_start(const char *address);

/* Forgets what it noted. */
void peer_forget(void);

unsigned int peer_requests(void);	/* that came whole */
unsigned int peer_connections(void);
unsigned int peer_cut(void);		/* answers of /big and so on that nobody read to the end */

/* The last request, as it came. To be freed. */
char *peer_last(void);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From which time on a look for jobs has to read. See horizon.c for why.
 */
#ifndef TWHEELD_SNAPSHOT_H
#define TWHEELD_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct running - transactions that were, or may have been, under way
 * @first:    from that number
 * @end:      to before that
 * @since_us: they have written no earlier "due"
 */
struct running {
	uint64_t first;
	uint64_t end;
	int64_t since_us;
};

/**
 * struct snapshots - of the last look that came to its end, and of the one that is under way
 * @last_us:    when the last one began; PG_MINUS_INF before the first
 * @running:    as of that, in order
 * @found:      as of the one that is under way, in order
 * @nr_running: how many
 * @nr_found:   how many
 * @voided:     while the one was under way
 */
struct snapshots {
	int64_t last_us;
	struct running *running;
	struct running *found;
	uint32_t nr_running;
	uint32_t nr_found;
	bool voided;
};

/* Nothing is known: all is to be read. */
void snapshots_init(struct snapshots *s);
void snapshots_free(struct snapshots *s);

/* Nothing of what is known counts any more: a clock was set, or all was forgotten. */
void snapshots_void(struct snapshots *s);

/* What those of another process know, whose look has come to its end. */
void snapshots_take(struct snapshots *s, int64_t last_us, const struct running *running,
		    uint32_t nr);

/* A look begins: pg_current_snapshot() as text, and a number that was had after that. */
void snapshots_begin(struct snapshots *s, const char *text, uint64_t own_xid);

/* Where the look has to begin, but for how much clocks may be wrong. */
int64_t snapshots_from_us(const struct snapshots *s);

/* The look has come to its end; it began at @now_us. */
void snapshots_end(struct snapshots *s, int64_t now_us);

#endif

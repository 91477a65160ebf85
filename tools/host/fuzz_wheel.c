// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzing of module/wheel.c in user space, against the oracle of rig.h.
 *
 * An input is a wheel to start with and then calls. A call is a byte, of which the low
 * half is what to do and the high half how, and the bytes that this takes; see
 * do_call(). Every string of bytes is an input.
 *
 * With a libFuzzer this is its target. With -DREPLAY it is a program that runs the
 * inputs which it is given, as one test in TAP.
 */
#include <sanitizer/common_interface_defs.h>
#include <stdint.h>

#include "rig.h"

#define MAX_CHUNKS	2
#define MAX_CALLS	120	/* keeps a single input fast */
#define VERIFY_EVERY	8	/* calls, as it costs more than a call does */

static struct {
	const uint8_t *at;
	const uint8_t *end;
	u64 last;	/* expiry that was asked for last */
} input;

static const char *replayed;

/* Sanitizers call it before they let the program die. */
static void tell_input(void)
{
	if (replayed)
		printf("# in input %s\n", replayed);
	fflush(stdout);
}

/* An EXPECT() that fails is a crash to libFuzzer. */
static void give_up(void)
{
	tell_input();
	abort();
}

static u32 take(void)
{
	return input.at < input.end ? *input.at++ : 0;
}

static u64 take_wide(u32 bytes)
{
	u64 value = 0;

	while (bytes--)
		value = value << 8 | take();
	return value;
}

/*
 * A tick. Most kinds count from @from, the tick that the wheel knows or that a timer
 * has, and go where wheels go wrong: to where a digit changes, and one beside it.
 */
static u64 take_tick(u32 kind, u64 from)
{
	u32 a = take();
	u64 beside = a % 4 - 1ULL;
	u64 width = WIDTH(a / 4 % WHEEL_LEVELS);

	switch (kind) {
	case 0:
		return add(from, 1 + a);
	case 1:
		return add(from, width - from % width + beside);
	case 2:
		return add(from, width + beside);
	case 3:
		return add(from, (1ULL << a / 4) + beside);
	case 4:
		return rig.due[a % rig.w.nr_nodes] + (a < 128 ? 0 : beside);
	case 5:
		return U64_MAX - rig.w.bias - a % 8;
	case 6:
		return add(from, take_wide(1 + a % 8));
	default:
		return input.last + (a < 128 ? 0 : beside);
	}
}

/* Every set-back has to be told before a timer is armed. */
static void tell(bool wanted)
{
	if (wanted || rig.tick < rig.told)
		rig_forward();
}

static void arm(u32 index, u64 expires)
{
	input.last = max(expires, add(rig.told, 1));
	if (input.last > rig.told)
		rig_arm(index, input.last);
}

static u32 take_armed(void)
{
	u32 i, index = take();

	for (i = 0; i < rig.w.nr_nodes; i++, index++)
		if (rig.armed[index % rig.w.nr_nodes])
			return index % rig.w.nr_nodes;
	return WHEEL_NONE;
}

/* An armed timer that is due first, or WHEEL_NONE. */
static u32 first_armed(void)
{
	u64 earliest = rig_earliest();
	u32 i;

	for (i = 0; i < rig.w.nr_nodes; i++)
		if (rig.armed[i] && rig_due(i) == earliest)
			return i;
	return WHEEL_NONE;
}

static void go_to(u64 tick)
{
	rig.tick = max(rig.tick, min(tick, rig_end()));
}

static void do_call(void)
{
	u32 call = take(), how = call >> 4, kind = how % 8, index, nr;
	u64 tick;

	switch (call % 16) {
	case 0:
	case 1:
		tell(how & 8);
		index = take() % rig.w.nr_nodes;
		arm(index, take_tick(kind, rig.told));
		break;
	case 2:		/* a crowd of one tick */
		tell(how & 8);
		index = take();
		nr = take() % (2 * ENTRIES + 2);
		tick = take_tick(kind, rig.told);
		while (nr--)
			arm(index++ % rig.w.nr_nodes, tick);
		break;
	case 3:		/* move to later */
	case 4:		/* move to a part of what remains */
		tell(how & 8);
		index = take_armed();
		if (index == WHEEL_NONE)
			break;
		tick = rig.due[index];
		if (call % 16 == 3)
			arm(index, take_tick(kind, tick));
		else if (tick > rig.told)
			arm(index, tick - (tick - rig.told) / 256 * take() - kind);
		break;
	case 5:
		index = how & 1 ? first_armed() : take_armed();
		if (index != WHEEL_NONE)
			rig_cancel(index);
		break;
	case 6:
	case 7:
		rig_piece(how);
		break;
	case 8:
		go_to(take_tick(kind, rig.tick));
		break;
	case 9:		/* to about the earliest */
	case 10:
		tick = rig_earliest();
		if (tick != U64_MAX)
			go_to(tick + kind - 2);
		if (how & 8)
			rig_piece(take());
		break;
	case 11:
		tick = take_wide(1 + kind);
		rig.tick -= min(rig.tick, tick);
		tell(how & 8);
		break;
	case 12:
		tell(true);
		break;
	case 13:
		rig_next(how);
		break;
	case 14:
		if (rig.w.open == WHEEL_NONE)
			rig_exact();
		break;
	default:
		if (how == 15 && rig.w.nr_nodes < MAX_CHUNKS * WHEEL_CHUNK_NODES)
			rig_grow();
		else
			rig_advance(rig.tick, how ? how : PLENTY);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	u32 calls, start;

	input.at = data;
	input.end = data + size;
	rig_random = 0;
	if (rig.room < MAX_CHUNKS)
		rig_alloc(MAX_CHUNKS);
	start = take();
	rig_start(starts[start % ARRAY_SIZE(starts)], 1);
	memset(rig.due, 0, rig.room * WHEEL_CHUNK_NODES * sizeof(*rig.due));
	input.last = rig.tick;
	for (calls = 0; calls < MAX_CALLS && input.at < input.end; calls++) {
		if (rig.tick >= rig_end() || rig.w.now >= U64_MAX - 2)
			break;
		do_call();
		if (calls % VERIFY_EVERY == 0)
			rig_verify();
	}
	rig_verify();
	tell(false);
	if (rig.tick < rig_end())
		rig_run_out(1 + start / ARRAY_SIZE(starts));
	return 0;
}

#ifdef REPLAY
int main(int argc, char **argv)
{
	static uint8_t data[1 << 16];
	int i;

	__sanitizer_set_death_callback(tell_input);
	for (i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");

		replayed = argv[i];
		if (!f) {
			printf("Bail out! cannot open %s\n", replayed);
			return 1;
		}
		LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof(data), f));
		fclose(f);
	}
	rig_free();
	printf("ok 1 - The %d inputs that fuzzing has kept agree with the oracle\n1..1\n",
	       argc - 1);
	return argc < 2;
}
#endif

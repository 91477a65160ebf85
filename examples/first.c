// SPDX-License-Identifier: MIT
/* first.c - two requests with a deadline; one is answered in time */
#include <stdio.h>
#include <string.h>
#include <twheel.h>

struct request {
	struct twheel_timer deadline;	/* zeroed before its first use */
	const char *name;
};

static void give_up(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	printf("%s: no answer\n", TWHEEL_CONTAINER(t, struct request, deadline)->name);
}

int main(void)
{
	struct request a = { .name = "a" }, b = { .name = "b" };
	struct twheel *w;
	int ret = twheel_open(&w, NULL);

	if (!ret)
		ret = twheel_arm(w, &a.deadline, 50 * TWHEEL_MSEC, give_up);
	if (!ret)
		ret = twheel_arm(w, &b.deadline, 50 * TWHEEL_MSEC, give_up);
	if (!ret)	/* later, at the price of a store */
		ret = twheel_arm(w, &a.deadline, 100 * TWHEEL_MSEC, give_up);
	if (!ret && twheel_cancel(w, &b.deadline) == 1)
		puts("b: answered");
	if (!ret)	/* or twheel_dispatch() when twheel_fd() is readable */
		ret = twheel_run(w);
	if (ret)
		fprintf(stderr, "timers: %s\n", strerror(-ret));
	twheel_close(w);
	return ret != 0;
}

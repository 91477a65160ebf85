// SPDX-License-Identifier: GPL-2.0
/* Tells the frequency of the processor's counter in kHz, 0 if there is none. */
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
static unsigned long long ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

int main(void)
{
	unsigned long long since = ns(), ticks = __builtin_ia32_rdtsc();

	while (ns() - since < 200000000)
		;
	ticks = __builtin_ia32_rdtsc() - ticks;
	printf("%llu\n", ticks * 1000000 / (ns() - since));
	return 0;
}
#else
int main(void)
{
	puts("0");
	return 0;
}
#endif

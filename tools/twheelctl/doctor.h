/* SPDX-License-Identifier: GPL-2.0 */
/* What twheelctl doctor finds, and where it looks */
#ifndef TWHEELCTL_DOCTOR_H
#define TWHEELCTL_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "run.h"

enum finding {
	FINE,
	NOTE,		/* does not matter, or may */
	WARNING,	/* works, but not for long */
	PROBLEM,
};

/**
 * struct doctor - one examination
 * @opt:     the command line
 * @worst:   of all that was found
 * @release: of the kernel
 */
struct doctor {
	const struct options *opt;
	enum finding worst;
	char release[65];
};

/* Tells what was found, and what to do about it unless @advice is NULL */
__attribute__((format(printf, 4, 5)))
void tell(struct doctor *d, enum finding kind, const char *advice, const char *format, ...);

/* The path in the machine that is looked at; in one buffer, until the next call */
__attribute__((format(printf, 2, 3)))
const char *in_root(const struct doctor *d, const char *format, ...);

/* The first line of a file there; false if it cannot be read */
bool first_line(const char *path, char *line, size_t size);

bool is_container(const struct doctor *d);

/* Why is there no device? */
void examine_module(struct doctor *d);

#endif /* TWHEELCTL_DOCTOR_H */

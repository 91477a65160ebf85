/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the linker puts in the place of a function, and what it calls the function itself:
 * see "--wrap" of ld(1).
 */
#ifndef LIBTWHEEL_TEST_WRAP_H
#define LIBTWHEEL_TEST_WRAP_H

#include <stddef.h>

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t nr, size_t size);
void *__wrap_calloc(size_t nr, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__real_reallocarray(void *p, size_t nr, size_t size);
void *__wrap_reallocarray(void *p, size_t nr, size_t size);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

#endif /* LIBTWHEEL_TEST_WRAP_H */

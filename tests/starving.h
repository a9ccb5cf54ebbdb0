/* SPDX-License-Identifier: Apache-2.0
 *
 * starving.h - the allocators of the C library, each of which asks first whether it fails. For one source of a program,
 * which is linked with the flags of the fixture `starving` and says what fails.
 */
#ifndef STARVING_H
#define STARVING_H

#include <errno.h>
#include <stddef.h>

static int fails(void); /* asked once an allocation */

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
int __real_posix_memalign(void **, size_t, size_t);
char *__real_strdup(const char *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
int __wrap_posix_memalign(void **, size_t, size_t);
char *__wrap_strdup(const char *);

void *__wrap_malloc(size_t n) {
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size) {
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *at, size_t n) {
    return fails() ? NULL : __real_realloc(at, n);
}
void *__wrap_aligned_alloc(size_t alignment, size_t n) {
    return fails() ? NULL : __real_aligned_alloc(alignment, n);
}
int __wrap_posix_memalign(void **at, size_t alignment, size_t n) {
    return fails() ? ENOMEM : __real_posix_memalign(at, alignment, n);
}
char *__wrap_strdup(const char *text) {
    return fails() ? NULL : __real_strdup(text);
}

#endif

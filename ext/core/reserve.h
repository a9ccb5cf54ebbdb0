/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve.h - the C library's allocators, with a reserve for what is needed after the ranks have agreed.
 *
 * A rank that has no memory for its part of an agreed batch cannot step aside: the others are under way. So what such a
 * part needs, beside results, is taken here. When malloc() has nothing left, the block comes from a region that was
 * mapped before. Pages of the region that nobody touches cost address space only.
 */
#ifndef HC_CORE_RESERVE_H
#define HC_CORE_RESERVE_H

#include <stddef.h>

#define HC_RESERVE_BYTES ((size_t)16 << 20)

/* Zeroed memory that becomes the reserve of this process, for ever. 0: there is one already. [any thread] */
int hc_reserve_give(void *region, size_t bytes);
int hc_reserve_exists(void);

/* As those of C, [any thread]. What they return is released by hc_free() alone, which also takes blocks of malloc(). */
void *hc_malloc(size_t);
void *hc_calloc(size_t n, size_t bytes);
void *hc_realloc(void *, size_t had, size_t bytes); /* had: bytes that are worth keeping */
char *hc_strdup(const char *);
void hc_free(void *);
/* Aligned to a cache line; zeroed by nobody. NULL: the reserve has none either. */
void *hc_reserve_take(size_t);

#endif

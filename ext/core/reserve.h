/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve.h - the C library's allocators, with a reserve for allocations after the ranks have agreed.
 *
 * A rank without memory for its part of an agreed batch cannot withdraw, because the other ranks have started. So all
 * memory of such a part, except results, is allocated here. If malloc() fails, the block comes from a region that was
 * mapped before. Untouched pages of the region cost only address space.
 */
#pragma once

#include <stddef.h>

#define HC_RESERVE_BYTES ((size_t)16 << 20)

/* Makes zeroed memory the reserve of this process, for ever. 0: there is one already. [any thread] */
int hc_reserve_give(void *region, size_t bytes);
int hc_reserve_exists(void);

/* As the C functions, [any thread]. Free their blocks only with hc_free(), which also takes blocks of malloc(). */
void *hc_malloc(size_t);
void *hc_calloc(size_t n, size_t bytes);
void *hc_realloc(void *, size_t had, size_t bytes); /* had: bytes to keep */
char *hc_strdup(const char *);
void hc_free(void *);
/* Aligned to a cache line; not zeroed. NULL: the reserve is exhausted, too. */
void *hc_reserve_take(size_t);

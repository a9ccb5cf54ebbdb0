/* SPDX-License-Identifier: Apache-2.0
 *
 * stubs.c - in place of the kernels and of what reads the machine.
 *
 * Only the first and the last of many bytes are copied, added and watched: so chunks of a page cost little.
 */
#include <stdlib.h>
#include <string.h>

#include "memory_model/explorer.h"
#include "transport/arithmetic.h"
#include "transport/shm/cores.h"
#include "transport/shm/segment.h"

#define FREED 4096 /* of a segment, so many bytes are watched when it goes */
#define ENDS 16    /* bytes at each end, a multiple of all dtypes */

void hc_host_copy(void *to, const void *from, size_t bytes) {
    if (bytes <= 2 * ENDS) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, ENDS);
    memcpy((uint8_t *)to + bytes - ENDS, (const uint8_t *)from + bytes - ENDS, ENDS);
}

void hc_shared_copy(void *to, const void *from, size_t bytes, enum hc_stores stores) {
    (void)stores;
    hc_host_copy(to, from, bytes);
}

void hc_host_reduce(void *to, int to_dtype, const void *const *from, int n_from, int from_dtype, int reduction,
                    int64_t n, double scale, double divisor) {
    (void)reduction, (void)scale, (void)divisor;
    mm_check(to_dtype == HC_INT32 && from_dtype == HC_INT32, "the scenarios have no such sum");
    int64_t end = ENDS / (int64_t)sizeof(int32_t);
    for (int64_t i = 0; i < n; i = i == end - 1 && n > 2 * end ? n - end : i + 1) {
        int32_t sum = 0;
        for (int q = 0; q < n_from; q++)
            sum += ((const int32_t *)from[q])[i];
        ((int32_t *)to)[i] = sum;
    }
}

void hc_host_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n, double scale) {
    (void)to_dtype, (void)scale;
    hc_host_copy(to, from, (size_t)n * hc_dtype_size(from_dtype));
}

void hc_host_neutral(void *to, int dtype, int reduction, int64_t n) {
    (void)to, (void)dtype, (void)reduction, (void)n;
    mm_check(0, "the scenarios have no joined rank");
}

/* ---- memory of threads is watched, so that a late access to what is freed is a race ------------------------- */

typedef union head {
    size_t bytes;
    uint8_t whole[16];
} head;

void *mm_calloc(size_t n, size_t bytes) {
    head *at = mm_shared(sizeof *at + n * bytes);
    at->bytes = n * bytes;
    return at + 1;
}

void *mm_malloc(size_t bytes) {
    return mm_calloc(1, bytes);
}

void mm_free(void *at) {
    if (at)
        mm_writes(at, ((head *)at)[-1].bytes);
}

void *hc_malloc(size_t bytes) {
    return mm_me() >= 0 ? mm_calloc(1, bytes) : malloc(bytes);
}

void *hc_calloc(size_t n, size_t bytes) {
    return mm_me() >= 0 ? mm_calloc(n, bytes) : calloc(n, bytes);
}

void hc_free(void *at) {
    if (mm_is_watched(at))
        mm_free(at);
    else
        free(at);
}

void *hc_realloc(void *at, size_t had, size_t bytes) {
    if (mm_me() < 0)
        return realloc(at, bytes);
    void *made = hc_malloc(bytes);
    if (had > 0)
        memcpy(made, at, had);
    hc_free(at);
    return made;
}

char *hc_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(hc_malloc(bytes), text, bytes);
}

void hc_result_free(void *at) {
    free(at);
}

/* Not in one piece, so that a reader that comes too early finds a race. */
void hc_cores_read(hc_cores *cores) {
    cores->word[0] = 3;
    cores->l3 = 1;
}

int32_t hc_cores_count(const hc_cores *cores) {
    return cores->word[0] == 3 ? 2 : -1;
}

hc_crowd hc_cores_crowd(const hc_cores *const *cores, int32_t n, int32_t machine, int32_t online) {
    hc_crowd crowd = {.ranks = n, .cores = 0, .shared = machine > n};
    (void)online;
    for (int32_t i = 0; i < n; i++)
        crowd.cores += hc_cores_count(cores[i]);
    return crowd;
}

/* Its memory goes: who has not ended its last access by then finds a race. */
void hc_segment_close(hc_segment *segment) {
    mm_writes(segment->base, segment->bytes < FREED ? segment->bytes : FREED);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * small.h - few bytes, one hand-off.
 */
#pragma once

#include "transport/shm/layout.h"

#define HC__SMALL_ROOM ((size_t)16 << 10)

/* A slot of the small path: the flag and its data, which begins in the flag's cache line. */
typedef struct hc__small {
    _Alignas(HC__LINE) _Atomic uint64_t sequence;
    _Alignas(16) uint8_t data[HC__SMALL_ROOM - 16];
} hc__small;

typedef struct hc__small_path {
    uint64_t sequence; /* of the newest batch */
    int sent;
} hc__small_path;

size_t hc__small_limit(int32_t local_size);
int hc__small_reduce(hc__shm *);

/* SPDX-License-Identifier: Apache-2.0
 *
 * fnv.h - FNV-1a (draft-eastlake-fnv), a hash of few bytes, equal on machines of every kind. Two inputs with one hash
 * are rare and not excluded: names that ranks agree on have the keys of hash.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HC_FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define HC_FNV_PRIME UINT64_C(0x100000001b3)

/* The hash of what `hash` is the hash of, followed by `data`. */
static inline uint64_t hc_fnv_more(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * HC_FNV_PRIME;
    return hash;
}

static inline uint64_t hc_fnv(const void *data, size_t bytes) {
    return hc_fnv_more(HC_FNV_BASIS, data, bytes);
}

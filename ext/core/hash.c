/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.c - the 128-bit key of a name: MurmurHash3 x64 128 (Austin Appleby, public domain), read as little
 * endian on every machine, so that ranks of different kinds agree.
 */
#include "core/hash.h"

#define C1 0x87c37b91114253d5ull
#define C2 0x4cf5ad432745937full

static uint64_t rotate(uint64_t x, int by) {
    return (x << by) | (x >> (64 - by));
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

/* Written so that compilers make one load of it on little-endian machines. */
static uint64_t load64(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 |
           (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

void hc__hash(const void *data, size_t bytes, uint64_t key[2]) {
    const uint8_t *p = data;
    uint64_t a = 0, b = 0, lo = 0, hi = 0;
    size_t left = bytes;
    for (; left >= 16; left -= 16, p += 16) {
        a ^= rotate(load64(p) * C1, 31) * C2;
        a = (rotate(a, 27) + b) * 5 + 0x52dce729;
        b ^= rotate(load64(p + 8) * C2, 33) * C1;
        b = (rotate(b, 31) + a) * 5 + 0x38495ab5;
    }
    for (size_t i = left; i > 8; i--)
        hi = hi << 8 | p[i - 1];
    for (size_t i = left < 8 ? left : 8; i > 0; i--)
        lo = lo << 8 | p[i - 1];
    if (left > 8)
        b ^= rotate(hi * C2, 33) * C1;
    if (left)
        a ^= rotate(lo * C1, 31) * C2;
    a ^= bytes;
    b ^= bytes;
    a += b;
    b += a;
    a = mix(a);
    b = mix(b);
    key[0] = a + b;
    key[1] = b + key[0];
}

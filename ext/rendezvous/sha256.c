/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256.c - SHA-256 by FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2, and the HMAC of RFC 2104. Names are the standard's.
 */
#include "rendezvous/sha256.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 64

typedef struct hash {
    uint32_t h[8];
    uint8_t block[BLOCK];
    uint64_t bytes; /* so far */
} hash;

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2). */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void add_block(hash *s) {
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)s->block[4 * t] << 24 | (uint32_t)s->block[4 * t + 1] << 16 |
               (uint32_t)s->block[4 * t + 2] << 8 | s->block[4 * t + 3];
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(v, s->h, sizeof v); /* a to h of the standard */
    for (int t = 0; t < 64; t++) {
        uint32_t e1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t a0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        uint32_t maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]), t1 = v[7] + e1 + ch + K[t] + w[t];
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + a0 + maj;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void begin(hash *s) {
    *s = (hash){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void add(hash *s, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t at = s->bytes % BLOCK, n = bytes < BLOCK - at ? bytes : BLOCK - at;
        memcpy(s->block + at, from, n);
        s->bytes += n;
        from += n;
        bytes -= n;
        if (s->bytes % BLOCK == 0)
            add_block(s);
    }
}

static void end(hash *s, unsigned char code[HC_SHA256_BYTES]) {
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t bits = 8 * s->bytes;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    add(s, padding, 1 + (BLOCK + 55 - s->bytes % BLOCK) % BLOCK);
    add(s, length, sizeof length);
    for (int i = 0; i < HC_SHA256_BYTES; i++)
        code[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hc_hmac(const void *key, size_t key_bytes, const hc_part *parts, int n, unsigned char code[HC_SHA256_BYTES]) {
    uint8_t inner[BLOCK] = {0}, outer[BLOCK];
    hash s;
    memcpy(inner, key, key_bytes < BLOCK ? key_bytes : BLOCK);
    for (int i = 0; i < BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    begin(&s);
    add(&s, inner, BLOCK);
    for (int i = 0; i < n; i++)
        add(&s, parts[i].data, parts[i].bytes);
    end(&s, code);
    begin(&s);
    add(&s, outer, BLOCK);
    add(&s, code, HC_SHA256_BYTES);
    end(&s, code);
}

int hc_codes_equal(const unsigned char a[HC_SHA256_BYTES], const unsigned char b[HC_SHA256_BYTES]) {
    unsigned char differs = 0;
    for (int i = 0; i < HC_SHA256_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

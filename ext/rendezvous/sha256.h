/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256.h - HMAC-SHA256 (FIPS 180-4, RFC 2104), which authenticates the messages of a rank to its launcher. A rank in
 * C shall need no library of cryptography, which compute nodes often lack.
 */
#pragma once

#include <stddef.h>

#define HC_SHA256_BYTES 32

/* Some bytes of a text that is hashed in parts. */
typedef struct hc_part {
    const void *data;
    size_t bytes;
} hc_part;

/* The code of the parts, one after the other. `key`: at most 64 bytes. */
void hc_hmac(const void *key, size_t key_bytes, const hc_part *parts, int n, unsigned char code[HC_SHA256_BYTES]);
/* Compares codes in a time that does not depend on them; 1: they are equal. */
int hc_codes_equal(const unsigned char a[HC_SHA256_BYTES], const unsigned char b[HC_SHA256_BYTES]);

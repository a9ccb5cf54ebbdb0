/* SPDX-License-Identifier: Apache-2.0
 *
 * hmac.c - prints the HMAC of standard input, in hexadecimal.
 *
 *     hmac KEY PARTS      KEY in hexadecimal; the input is hashed in so many parts
 */
#include "rendezvous/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    static unsigned char input[1 << 20];
    unsigned char key[64], code[HC_SHA256_BYTES];
    size_t bytes = fread(input, 1, sizeof input, stdin), at = 0, digits = strlen(argv[1]);
    int n = argc > 2 ? atoi(argv[2]) : 1;
    hc_part *parts = calloc((size_t)n, sizeof *parts);
    for (size_t i = 0; i < digits / 2; i++)
        sscanf(argv[1] + 2 * i, "%2hhx", &key[i]);
    for (int i = 0; i < n; i++, at += parts[i - 1].bytes)
        parts[i] = (hc_part){input + at, i + 1 < n ? bytes / (size_t)n : bytes - at};
    hc_hmac(key, digits / 2, parts, n, code);
    for (int i = 0; i < HC_SHA256_BYTES; i++)
        printf("%02x", code[i]);
    printf("\n");
    free(parts);
    return 0;
}

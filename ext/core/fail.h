/* SPDX-License-Identifier: Apache-2.0
 *
 * fail.h - a failure breaks the World: ranks do not agree on it, but forward it along the edges of all trees.
 */
#pragma once

#include "core/text.h"
#include "core/wire.h"

#define HC__FAIL_FIXED (HC__HEADER + 4 + 4 + 4)

typedef struct hc__failure {
    uint8_t failed;
    uint8_t flooded; /* a failure was forwarded */
    char *text;      /* the reason, HC__TEXT bytes; NULL: no failure, or no memory for the text */
    uint8_t message[HC__FAIL_FIXED + HC__TEXT]; /* the forwarded message; needs no allocation */
} hc__failure;

/* Breaks the World. `lost`: World rank of a lost peer, or -1. `from`: the peer whose message said so, or -1. */
void hc__fail(hc_engine *, int status, int32_t lost, const char *text, int32_t from);
int hc__fail_receive(hc_engine *, int32_t from, const uint8_t *, size_t);

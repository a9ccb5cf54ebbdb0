/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - the values of ranks as text, for a launcher that relays them: bytes in hexadecimal, behind the version of
 * the library.
 */
#pragma once

#include "rendezvous/rendezvous.h"

/* "`before`00ff...": the caller frees it. NULL: no memory. */
char *hc__to_hex(const char *before, const void *data, size_t bytes);
/* 1: the text has exactly so many bytes. */
int hc__from_hex(const char *text, void *data, size_t bytes);
/* The value of this rank, as hc__value_take() reads it on any rank: the caller frees it. NULL: no memory. */
char *hc__value_text(const hc_rendezvous *, const void *mine, size_t bytes);
/* Writes the value of a rank to its place in `all`. OK, or TRANSPORT and `why`: another version or another value. */
int hc__value_take(hc_rendezvous *, int32_t rank, const char *text, size_t bytes, void *all);

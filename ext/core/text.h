/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - bounded text for people, always ends in 0.
 */
#pragma once

#include "core/base.h"

#define HC__TEXT 1024 /* room of a text for people */

typedef struct hc__text {
    char *at;
    size_t room, len;
} hc__text;

hc__text hc__text_on(char *buffer, size_t room); /* empty; text beyond `room` bytes is cut off */
void hc__put(hc__text *, const char *);
void hc__put_some(hc__text *, const char *, size_t n); /* unprintable characters become '?' */
void hc__put_int(hc__text *, int64_t);
void hc__put_real(hc__text *, double);
void hc__put_seconds(hc__text *, uint64_t ns);

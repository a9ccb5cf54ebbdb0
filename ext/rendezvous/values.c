/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c - see values.h.
 */
#include "rendezvous/values.h"
#include "rendezvous/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *hc__to_hex(const char *before, const void *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    size_t at = strlen(before);
    char *text = malloc(at + 2 * bytes + 1);
    if (!text)
        return NULL;
    memcpy(text, before, at);
    for (const unsigned char *from = data, *end = from + bytes; from < end; from++) {
        text[at++] = digits[*from >> 4];
        text[at++] = digits[*from & 15];
    }
    text[at] = 0;
    return text;
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hc__from_hex(const char *text, void *data, size_t bytes) {
    unsigned char *to = data;
    if (strlen(text) != 2 * bytes)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return 0;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return 1;
}

char *hc__value_text(const hc_rendezvous *r, const void *mine, size_t bytes) {
    char version[18];
    snprintf(version, sizeof version, "%.15s ", r->version);
    return hc__to_hex(version, mine, bytes);
}

/* `text`: a version, a blank, a value. */
int hc__value_take(hc_rendezvous *r, int32_t rank, const char *text, size_t bytes, void *all) {
    char version[16];
    size_t length = strcspn(text, " ");
    snprintf(version, sizeof version, "%.*s", (int)length, text);
    if (text[length] != ' ' || strcmp(version, r->version) != 0)
        return hc__other_version(r, rank, text[length] == ' ' ? version : "");
    if (hc__from_hex(text + length + 1, (char *)all + (size_t)rank * bytes, bytes))
        return HC_OK;
    snprintf(r->why, sizeof r->why,
             "rank %d is at another step of the start than rank 0: all ranks make the "
             "same Worlds in the same order",
             (int)rank);
    return HC_TRANSPORT;
}

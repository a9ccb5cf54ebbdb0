/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - builds texts for people without the C library's formatter.
 */
#include "core/text.h"

hc__text hc__text_on(char *buffer, size_t room) {
    buffer[0] = 0;
    return (hc__text){.at = buffer, .room = room, .len = 0};
}

void hc__put_some(hc__text *text, const char *more, size_t n) {
    size_t left = text->room - 1 - text->len;
    if (n > left)
        n = left;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)more[i];
        text->at[text->len + i] = (char)(c < 32 || c == 127 ? '?' : c);
    }
    text->len += n;
    text->at[text->len] = 0;
}

void hc__put(hc__text *text, const char *more) {
    hc__put_some(text, more, strlen(more));
}

void hc__put_int(hc__text *text, int64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        digits[--at] = '-';
    hc__put_some(text, digits + at, sizeof digits - at);
}

/* Scales to one digit before the point and returns the exponent. The factors are exact enough for the nine digits
 * shown. */
static int scale_to_unit(double *value) {
    int exponent = 0;
    while (*value >= 10.0) {
        *value /= 10.0;
        exponent++;
    }
    while (*value < 1.0) {
        *value *= 10.0;
        exponent--;
    }
    return exponent;
}

static void put_digits(hc__text *text, double value) {
    uint64_t scaled = (uint64_t)(value * 1e8 + 0.5);
    hc__put_int(text, (int64_t)(scaled / 100000000u));
    scaled %= 100000000u;
    if (!scaled)
        return;
    hc__put(text, ".");
    for (uint64_t unit = 10000000u; scaled; unit /= 10) {
        hc__put_int(text, (int64_t)(scaled / unit));
        scaled %= unit;
    }
}

void hc__put_real(hc__text *text, double value) {
    if (value != value) {
        hc__put(text, "nan");
        return;
    }
    if (value < 0) {
        hc__put(text, "-");
        value = -value;
    }
    if (value > 1.7976931348623157e308) {
        hc__put(text, "inf");
    } else if (value < 1e9 && value == (double)(int64_t)value) {
        hc__put_int(text, (int64_t)value);
    } else if (value >= 1e-3 && value < 10.0) {
        put_digits(text, value);
    } else {
        int exponent = scale_to_unit(&value);
        put_digits(text, value);
        hc__put(text, "e");
        hc__put_int(text, exponent);
    }
}

void hc__put_seconds(hc__text *text, uint64_t ns) {
    uint64_t tenths = ns / 100000000u;
    hc__put_int(text, (int64_t)(tenths / 10));
    hc__put(text, ".");
    hc__put_int(text, (int64_t)(tenths % 10));
    hc__put(text, " s");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - see json.h.
 */
#include "rendezvous/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

static const char *after_blanks(const char *at) {
    return at + strspn(at, BLANKS);
}

/* `at`: the first quote of a string. NULL: it does not end. */
static const char *after_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        at += *at == '\\' && at[1];
    return *at ? at + 1 : NULL;
}

/* NULL: it is no value. */
static const char *after_value(const char *at) {
    int depth = 0;
    do {
        at = after_blanks(at);
        size_t plain = strcspn(at, BLANKS "\",:[]{}"); /* a number, true, false, null */
        if (*at == '"')
            at = after_string(at);
        else if (plain)
            at += plain;
        else if (!*at || (!depth && *at != '[' && *at != '{'))
            return NULL;
        else
            depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}'), at++;
    } while (at && depth > 0);
    return at;
}

const char *hc__json_get(const char *object, const char *key) {
    const char *at = after_blanks(object);
    if (*at++ != '{')
        return NULL;
    for (;;) {
        const char *name = after_blanks(at), *end = *name == '"' ? after_string(name) : NULL;
        at = end ? after_blanks(end) : "";
        if (*at++ != ':')
            return NULL;
        at = after_blanks(at);
        if ((size_t)(end - name) == strlen(key) + 2 && !memcmp(name + 1, key, strlen(key)))
            return after_value(at) ? at : NULL;
        if (!(at = after_value(at)) || *(at = after_blanks(at)) != ',')
            return NULL;
        at++;
    }
}

const char *hc__json_first(const char *array) {
    const char *at = after_blanks(array);
    if (*at != '[')
        return NULL;
    at = after_blanks(at + 1);
    return after_value(at) ? at : NULL;
}

const char *hc__json_next(const char *element) {
    const char *at = after_value(element);
    if (!at || *(at = after_blanks(at)) != ',')
        return NULL;
    at = after_blanks(at + 1);
    return after_value(at) ? at : NULL;
}

int64_t hc__json_number(const char *value) {
    size_t digits = value ? strspn(value, "0123456789") : 0;
    return digits && digits < 19 && strchr(BLANKS ",]}", value[digits]) ? strtoll(value, NULL, 10) : -1;
}

/* ---- strings ----------------------------------------------------------------------------------------------- */

/* The number of "XXXX"; -1: these are no four digits. */
static long code_unit(const char *at) {
    char digits[5] = "";
    for (int i = 0; i < 4 && at[i]; i++)
        digits[i] = at[i];
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* Reads what follows "\u", one code unit or a pair of them, and writes it in UTF-8. NULL: it is wrong. */
static const char *take_code(const char *at, char **to) {
    long code = code_unit(at), low;
    if (code < 0)
        return NULL;
    at += 4;
    if (code >= 0xd800 && code < 0xdc00 && at[0] == '\\' && at[1] == 'u' && (low = code_unit(at + 2)) >= 0xdc00 &&
        low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    char *next = *to;
    if (code < 0x80) {
        *next++ = (char)(code ? code : '?');
    } else {
        int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        *next++ = (char)((0xf00 >> (more + 1) & 0xff) | code >> 6 * more);
        while (more--)
            *next++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    }
    *to = next;
    return at;
}

char *hc__json_string(const char *value) {
    static const char escapes[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *end = value && *value == '"' ? after_string(value) : NULL;
    char *text = end ? malloc((size_t)(end - value)) : NULL, *to = text; /* an escape is longer than what it means */
    for (const char *at = value + 1; text && at && at + 1 < end;) {
        const char *found = *at == '\\' ? strchr(escapes, at[1]) : NULL;
        if (*at != '\\') {
            *to++ = *at++;
        } else if (at[1] == 'u') {
            at = take_code(at + 2, &to);
        } else if (found && *found) {
            *to++ = means[found - escapes];
            at += 2;
        } else {
            at = NULL;
        }
        if (!at) {
            free(text);
            text = NULL;
        }
    }
    if (text)
        *to = 0;
    return text;
}

void hc__json_quote(const char *text, char *string, size_t room) {
    size_t at = 0;
    string[at++] = '"';
    for (; *text && at + 8 < room; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ')
            at += (size_t)snprintf(string + at, room - at, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            at += (size_t)snprintf(string + at, room - at, "\\%c", c);
        else
            string[at++] = (char)(c < 0x7f ? c : '?');
    }
    string[at++] = '"';
    string[at] = 0;
}

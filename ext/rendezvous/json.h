/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - reads the messages of the launcher, which are JSON, without a tree: functions find values in the text.
 *
 * A value is the place in the text where it begins. The text ends with a 0, and may be anything: what is no JSON has no
 * such value.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The value of a key of an object; NULL: it has none. */
const char *hc__json_get(const char *object, const char *key);
/* The first element of an array; the element behind one. NULL: there is none. */
const char *hc__json_first(const char *array);
const char *hc__json_next(const char *element);
/* A whole number from 0; -1: it is none. NULL is allowed. */
int64_t hc__json_number(const char *value);
/* A string, which the caller frees; NULL: it is none, or no memory. NULL is allowed. */
char *hc__json_string(const char *value);
/* Writes a text as a string of JSON, cut to the room. Bytes that are no ASCII become '?'. */
void hc__json_quote(const char *text, char *string, size_t room);

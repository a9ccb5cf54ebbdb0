/* SPDX-License-Identifier: Apache-2.0
 *
 * why.h - the text of an error of this folder, for the language that raises it.
 */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#define HC_WHY 1024 /* bytes of a text */

/* Writes why. Returns the status. */
__attribute__((cold, noinline, unused, format(printf, 3, 4))) static int hc__refuse(char why[HC_WHY], int status,
                                                                                    const char *form, ...) {
    va_list values;
    va_start(values, form);
    vsnprintf(why, HC_WHY, form, values);
    va_end(values);
    return status;
}

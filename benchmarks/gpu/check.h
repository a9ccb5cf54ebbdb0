/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - CHECK(condition), which ends the program with its position if the condition is false.
 */
#ifndef HC_BENCHMARK_CHECK_H
#define HC_BENCHMARK_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                    \
    do {                                                               \
        if (!(what)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

#endif

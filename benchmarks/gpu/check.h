/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - what must hold, or the program ends and says where.
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

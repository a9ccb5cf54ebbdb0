/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - what the C programs of this folder share: a check that says where, and an opened driver.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "cuda/driver/driver.h"

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* The driver of this file, on device 0. */
static inline void open_driver(hc_driver *d, const char *file) {
    hc_gpu_context context;
    int device;
    if (hc_driver_open(d, file) < 0) {
        fprintf(stderr, "%s (%s)\n", d->library.text, d->library.remedy);
        exit(1);
    }
    CHECK(d->devices > 0 && d->device_get(&device, 0) == 0);
    CHECK(d->context_retain(&context, device) == 0 && d->context_use(context) == 0);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * device_program.h - what the programs of this folder begin with, and how they measure.
 */
#ifndef HC_BENCHMARK_DEVICE_PROGRAM_H
#define HC_BENCHMARK_DEVICE_PROGRAM_H

#include "check.h"
#include "cuda/driver/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Opens device 0 and makes it current; ends the program with the reason where that fails. */
static inline hc_device *open_device(const hc_device_files *files) {
    static char why[HC_DEVICE_WHY];
    hc_device *device;
    if (hc_device_open(0, files, &device, why) < 0) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    hc_device_enter(device);
    return device;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Sorts the seconds and prints them as the last member of an object of JSON. */
static inline void print_seconds(double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    printf("\"seconds\": [");
    for (int i = 0; i < n; i++)
        printf("%s%.9f", i ? ", " : "", seconds[i]);
    printf("]}\n");
    fflush(stdout);
}

#endif

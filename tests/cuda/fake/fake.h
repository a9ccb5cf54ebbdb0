/* SPDX-License-Identifier: Apache-2.0
 *
 * fake.h - what the fake driver offers to the fake NCCL and to kernels, beside the driver's own functions.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>

/* Work in a stream: run is asked until it answers 1, then the stream goes on. */
int fake_enqueue(void *stream, int (*run)(void *data), void *data);

/* The failure that the environment plants in this call, or 0. */
int fake_failure(const char *name);

/* A kernel of the fake driver is a host function of one argument, a struct by value; it is exported as kernel_NAME. */
typedef struct fake_kernel {
    size_t argument_bytes;
    void (*run)(const void *argument, unsigned grid, unsigned block);
} fake_kernel;

#endif

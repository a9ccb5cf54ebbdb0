/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h - arithmetic between nodes on the device, for an MPI that reads device memory: private to nccl_*.c and
 * device_data.c.
 *
 * The net's algorithms run as on the host. Their sums are launched in one stream. A message is sent only after the
 * kernels that made its data have ended: the algorithms poll hc_arithmetic_ops.ended for that.
 */
#pragma once

#include "cuda/driver/device_own.h"

#define HC__SUMS_EVENTS 16 /* a channel has one or two kernels in flight */

typedef struct hc__sums {
    hc_arithmetic base;
    hc_device *device;
    hc_net *net; /* it calls its library in the device's context */
    hc_gpu_stream stream;
    hc_gpu_event events[HC__SUMS_EVENTS]; /* number i uses i % HC__SUMS_EVENTS */
    uint64_t over;                        /* numbers below this have ended */
    uint8_t waits;                        /* a poll found unfinished work */
    char text[256];
} hc__sums;

/* Also makes the net call its library in the device's context, until close. OK, or a status with hc__sums.text. */
int hc__sums_open(hc__sums *, hc_device *, hc_net *);
void hc__sums_close(hc__sums *); /* waits a little for running work */

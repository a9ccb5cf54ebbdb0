/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h - the arithmetic between nodes in a device's memory, so that MPI is given that memory: private to nccl_*.c and
 * device_data.c.
 *
 * The net's algorithms run as they do on the host. What they sum is launched in one stream; what they send waits until
 * the kernels that made it have ended (hc_arithmetic_ops.ended), which is asked for and not waited for.
 */
#ifndef HC_SUMS_H
#define HC_SUMS_H

#include "cuda/driver/device_own.h"

#define HC__SUMS_EVENTS 16 /* channels have one or two kernels each under way */

typedef struct hc__sums {
    hc_arithmetic base;
    hc_device *device;
    hc_net *net; /* whose library is called in the device's context */
    hc_gpu_stream stream;
    hc_gpu_event events[HC__SUMS_EVENTS]; /* of number i: i % HC__SUMS_EVENTS */
    uint64_t over;                        /* as many are known to have ended */
    uint8_t waits;                        /* somebody asked, and was told to wait */
    char text[256];
} hc__sums;

/* Also makes the net call its library in the device's context, until close. OK, or a status with hc__sums.text. */
int hc__sums_open(hc__sums *, hc_device *, hc_net *);
void hc__sums_close(hc__sums *); /* waits a little for what is under way */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * sum.h - reductions in device memory by the kernels of sum.cu: one launch each.
 */
#pragma once

#include "cuda/driver/module.h"
#include "cuda/kernels/sum_job.h"

#define HC_SUM_KERNELS 10
typedef hc_module hc_summer;

/* The number of the kernel for a type, and of its operation for a reduction; -1: there is none. */
int hc_sum_kernel(int dtype);
int hc_sum_operation(int reduction);
const char *hc_sum_kernel_name(int kernel); /* "hc_sum_f32" */

/* Loads the kernels from folder/sum.ptx; TRANSPORT with text where the driver refuses. It zeroes the struct. */
int hc_summer_open(hc_summer *, const hc_driver *, const char *folder);
void hc_summer_close(hc_summer *); /* all launches must be done */

typedef struct hc_sum_order {
    void *to; /* may be one of from[] */
    const void *const *from;
    int n_from; /* at most HC_SUM_MOST */
    int dtype, reduction;
    int64_t count;
    double divisor; /* AVERAGE, of floats only */
} hc_sum_order;
/* One launch in `stream`: OK, UNSUPPORTED if there is no kernel, or a status with text. */
int hc_sum_launch(hc_summer *, const hc_sum_order *, hc_gpu_stream stream);

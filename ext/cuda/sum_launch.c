/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_launch.c - loads the kernels that add up from their text, chooses one, launches it.
 */
#include "sum.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 2048u /* at most: what some waves need on any card. An estimate */
#define VECTOR 16

static const char text[] =
#include "sum.ptx.inc"
    ;

/*    dtype     kernel      */
#define KERNELS(X)             \
    X(INT8, "hc_sum_i8")       \
    X(UINT8, "hc_sum_u8")      \
    X(INT32, "hc_sum_i32")     \
    X(UINT32, "hc_sum_u32")    \
    X(INT64, "hc_sum_i64")     \
    X(UINT64, "hc_sum_u64")    \
    X(FLOAT16, "hc_sum_f16")   \
    X(BFLOAT16, "hc_sum_bf16") \
    X(FLOAT32, "hc_sum_f32")   \
    X(FLOAT64, "hc_sum_f64")

static const struct {
    int dtype;
    const char *name;
} kernels[HC_SUM_KERNELS] = {
#define X(dtype, name) {HC_##dtype, name},
    KERNELS(X)
#undef X
};

int hc_sum_kernel(int dtype) {
    for (int i = 0; i < HC_SUM_KERNELS; i++)
        if (kernels[i].dtype == dtype)
            return i;
    return -1;
}

const char *hc_sum_kernel_name(int kernel) {
    return kernels[kernel].name;
}

int hc_sum_operation(int reduction) {
    static const int codes[HC_REDUCTION_COUNT] = {[HC_SUM] = 1 + HC_SUM_ADD,
                                                  [HC_PRODUCT] = 1 + HC_SUM_MULTIPLY,
                                                  [HC_MIN] = 1 + HC_SUM_LEAST,
                                                  [HC_MAX] = 1 + HC_SUM_GREATEST};
    return codes[reduction] - 1;
}

static int failed(hc_summer *summer, const char *what, int status) {
    snprintf(summer->text, sizeof summer->text, "%s: %s (%d)", what, hc_driver_text(summer->driver, status),
             status);
    return HC_TRANSPORT;
}

int hc_summer_open(hc_summer *summer, const hc_driver *driver) {
    memset(summer, 0, sizeof *summer);
    summer->driver = driver;
    int status = driver->module_load(&summer->module, text);
    if (status)
        return failed(summer, "loading the kernels that add up", status);
    for (int i = 0; i < HC_SUM_KERNELS; i++) {
        status = driver->module_function(&summer->function[i], summer->module, kernels[i].name);
        if (status)
            return failed(summer, kernels[i].name, status);
    }
    return HC_OK;
}

void hc_summer_close(hc_summer *summer) {
    if (summer->module)
        summer->driver->module_free(summer->module);
    memset(summer, 0, sizeof *summer);
}

int hc_sum_launch(hc_summer *summer, const hc_sum_order *order, hc_gpu_stream stream) {
    int kernel = hc_sum_kernel(order->dtype), operation = hc_sum_operation(order->reduction);
    if (kernel < 0 || operation < 0 || order->n_from < 1 || order->n_from > HC_SUM_MOST) {
        snprintf(summer->text, sizeof summer->text, "no kernel for this sum");
        return HC_UNSUPPORTED;
    }
    uint64_t lanes = VECTOR / hc_dtype_size(order->dtype), all = (uintptr_t)order->to;
    hc_sum_job job = {.to = (uintptr_t)order->to,
                      .count = (uint64_t)order->count,
                      .operation = (unsigned)operation,
                      .sources = (unsigned)order->n_from};
    for (int q = 0; q < order->n_from; q++)
        all |= job.from[q] = (uintptr_t)order->from[q];
    job.vectors = all % VECTOR == 0 ? job.count / lanes : 0;
    uint64_t work = job.vectors ? job.vectors : job.count,
             blocks = (work + HC_SUM_THREADS - 1) / HC_SUM_THREADS;
    void *arguments[] = {&job};
    if (order->count == 0)
        return HC_OK;
    int status = summer->driver->launch(summer->function[kernel], blocks < BLOCKS ? (unsigned)blocks : BLOCKS,
                                        1, 1, HC_SUM_THREADS, 1, 1, 0, stream, arguments, NULL);
    return status ? failed(summer, kernels[kernel].name, status) : HC_OK;
}

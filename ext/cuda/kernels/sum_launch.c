/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_launch.c - chooses a kernel of sum.cu and launches it.
 */
#include "cuda/kernels/sum.h"

#include <stdio.h>

#define VECTOR 16 /* bytes: the largest access */

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
                                                  [HC_AVERAGE] = 1 + HC_SUM_ADD,
                                                  [HC_PRODUCT] = 1 + HC_SUM_MULTIPLY,
                                                  [HC_MIN] = 1 + HC_SUM_LEAST,
                                                  [HC_MAX] = 1 + HC_SUM_GREATEST};
    return codes[reduction] - 1;
}

static const hc_module_text texts = {"the kernels that add up", "sum.ptx", hc_sum_kernel_name, HC_SUM_KERNELS};

int hc_summer_open(hc_summer *summer, const hc_driver *driver, const char *folder) {
    return hc_module_open(summer, driver, &texts, folder);
}

void hc_summer_close(hc_summer *summer) {
    hc_module_close(summer);
}

int hc_sum_launch(hc_summer *summer, const hc_sum_order *order, hc_gpu_stream stream) {
    int kernel = hc_sum_kernel(order->dtype), operation = hc_sum_operation(order->reduction);
    int divides = order->reduction == HC_AVERAGE, is_float = order->dtype >= HC_FLOAT16;
    if (kernel < 0 || operation < 0 || (divides && !is_float) || order->n_from < 1 || order->n_from > HC_SUM_MOST) {
        snprintf(summer->text, sizeof summer->text, "no kernel for this sum");
        return HC_UNSUPPORTED;
    }
    uint64_t lanes = VECTOR / hc_dtype_size(order->dtype), all = (uintptr_t)order->to;
    hc_sum_job job = {.to = (uintptr_t)order->to,
                      .count = (uint64_t)order->count,
                      .operation = (unsigned short)operation,
                      .sources = (unsigned short)order->n_from,
                      .divisor = divides ? (float)order->divisor : 1.0f};
    for (int q = 0; q < order->n_from; q++)
        all |= job.from[q] = (uintptr_t)order->from[q];
    job.vectors = all % VECTOR == 0 ? job.count / lanes : 0;
    uint64_t work = job.vectors ? job.vectors : job.count;
    if (order->count == 0)
        return HC_OK;
    return hc_module_launch(summer, kernel, (work + HC_SUM_THREADS - 1) / HC_SUM_THREADS, HC_SUM_THREADS, &job, stream);
}

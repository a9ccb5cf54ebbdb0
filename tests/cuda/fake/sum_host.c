/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_host.c - the kernels that add up (ext/cuda/sum.cu) compiled for the host.
 */
#include "values_host.h"

#include "cuda/kernels/sum.cu"

#define RUN_SUM(type) RUN(hc_sum_##type, hc_sum_job, HC_SUM_THREADS)
RUN_SUM(i8)
RUN_SUM(u8)
RUN_SUM(i32)
RUN_SUM(u32)
RUN_SUM(i64)
RUN_SUM(u64)
RUN_SUM(f16)
RUN_SUM(bf16)
RUN_SUM(f32)
RUN_SUM(f64)

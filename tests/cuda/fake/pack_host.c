/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_host.c - the pack kernels (ext/cuda/pack.cu) compiled for the host.
 */
#include "values_host.h"

#include "cuda/kernels/pack.cu"

#define RUN_PACK(types) RUN(hc_pack_##types, hc_pack_job, HC_PACK_THREADS)
#define RUN_FROM(from) RUN_PACK(from##_f16) RUN_PACK(from##_bf16) RUN_PACK(from##_f32) RUN_PACK(from##_f64)
RUN_FROM(f16)
RUN_FROM(bf16)
RUN_FROM(f32)
RUN_FROM(f64)
RUN_PACK(copy1)
RUN_PACK(copy2)
RUN_PACK(copy4)
RUN_PACK(copy8)

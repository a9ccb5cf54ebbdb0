/* SPDX-License-Identifier: Apache-2.0
 *
 * sum.cu - what the net's algorithms add up, where it lies in a device's memory: to[i] = from[0][i] + from[1][i] + ...
 *
 * The same values as on the host (ext/transport/kernels/vector.h): in the sources' order; float16 and bfloat16 in
 * float32, rounded once; integers wrap; of least and greatest once a NaN is always a NaN, and of equal values the first
 * stays. A mean is the sum, divided once. Here float32 and float64 are added up in their own type, as NCCL does in a
 * node: the host adds them up in more.
 *
 * A thread takes 16 bytes of each source in turn, reads all before it writes, and goes on a grid's width further.
 * Whether as many threads as fit hide the latency of that, no GPU has measured.
 *     hc_sum_T     i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64
 */
#include "cuda/kernels/sum_job.h"
#include "cuda/kernels/values.h"

typedef signed char i8;
typedef unsigned char u8;
typedef int i32;
typedef unsigned u32;
typedef long long i64;
typedef unsigned long long u64;

/* ---- floats ------------------------------------------------------------------------------------------- */

#define ADD(a, b) ((a) + (b))
#define DIVIDE(x, by) ((by) == 1 ? (x) : (x) / (by))
#define MULTIPLY(a, b) ((a) * (b))
#define LEAST(a, b) (((b) < (a) || (b) != (b)) && (a) == (a) ? (b) : (a))
#define GREATEST(a, b) (((b) > (a) || (b) != (b)) && (a) == (a) ? (b) : (a))

#define T f16
#define WIDE float
#define WIDEN from_f16
#define NARROW f32_to_f16
#include "cuda/kernels/sum_loop.h"
#define T bf16
#define WIDE float
#define WIDEN from_bf16
#define NARROW f32_to_bf16
#include "cuda/kernels/sum_loop.h"
#define T f32
#include "cuda/kernels/sum_loop.h"
#define T f64
#include "cuda/kernels/sum_loop.h"

/* ---- integers, which wrap as unsigned ones do ----------------------------------------------------------- */

#undef ADD
#undef DIVIDE
#undef MULTIPLY
#undef LEAST
#undef GREATEST
#define ADD(a, b) ((WIDE)((UNSIGNED)(a) + (UNSIGNED)(b)))
#define DIVIDE(x, by) (x)
#define MULTIPLY(a, b) ((WIDE)((UNSIGNED)(a) * (UNSIGNED)(b)))
#define LEAST(a, b) ((b) < (a) ? (b) : (a))
#define GREATEST(a, b) ((b) > (a) ? (b) : (a))

#define T i8
#define UNSIGNED u8
#include "cuda/kernels/sum_loop.h"
#define T u8
#define UNSIGNED u8
#include "cuda/kernels/sum_loop.h"
#define T i32
#define UNSIGNED u32
#include "cuda/kernels/sum_loop.h"
#define T u32
#define UNSIGNED u32
#include "cuda/kernels/sum_loop.h"
#define T i64
#define UNSIGNED u64
#include "cuda/kernels/sum_loop.h"
#define T u64
#define UNSIGNED u64
#include "cuda/kernels/sum_loop.h"

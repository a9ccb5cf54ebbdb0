/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_to.h - the kernels of pack.cu from one type (FROM) to all types, in REAL arithmetic; included once per FROM.
 */
#define TO f16
#include "cuda/kernels/pack_loop.h"
#define TO bf16
#include "cuda/kernels/pack_loop.h"
#define TO f32
#include "cuda/kernels/pack_loop.h"

#undef REAL
#define REAL double
#define TO f64
#include "cuda/kernels/pack_loop.h"

#undef FROM
#undef REAL

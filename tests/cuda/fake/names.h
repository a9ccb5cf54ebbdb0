/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - prototypes of the fake driver, drawn from the table that it is to fill: CUDA's names, or HIP's.
 */
#ifndef FAKE_NAMES_H
#define FAKE_NAMES_H

#include "cuda/driver/driver.h"

#ifdef FAKE_HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define X(member, cuda, hip, arguments) int fake_##member arguments __asm__(NAME(cuda, hip));
HC_DRIVER_FUNCTIONS(X)
#undef X

#endif

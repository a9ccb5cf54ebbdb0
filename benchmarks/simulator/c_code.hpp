// SPDX-License-Identifier: Apache-2.0
//
// c_code.hpp - the C headers of ext, read by a C++ compiler. Counters are atomic there; one thread simulates all ranks.
#ifndef C_CODE_HPP
#define C_CODE_HPP

#include <cstdint>

#define _Atomic
#define _Alignas alignas
#define _Static_assert static_assert
#define memory_order_relaxed 0
#define atomic_load_explicit(at, order) (*(at))
#define atomic_store_explicit(at, value, order) (*(at) = (value))
extern "C" {
#include "fleet/resnet50.h"
#include "transport/hierarchy/hierarchy.h"
#include "transport/hierarchy/placement.h"
#include "transport/net/channel.h"
#include "transport/net/vote.h"
}
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef memory_order_relaxed
#undef _Static_assert
#undef _Alignas
#undef _Atomic

#endif

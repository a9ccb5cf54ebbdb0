/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h - the 128-bit key of a name, equal on machines of every kind.
 */
#pragma once

#include "core/base.h"

void hc__hash(const void *, size_t bytes, uint64_t key[2]);

/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h - applies entries of a set's log.
 */
#pragma once

#include "core/entry.h"

void hc__log_apply(hc__set *, const hc__entry *); /* the entry must be checked */

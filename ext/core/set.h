/* SPDX-License-Identifier: Apache-2.0
 *
 * set.h - adds and removes process sets.
 */
#pragma once

#include "core/base.h"

int hc__set_add(hc_engine *, const hc_set_config *);
int hc__set_remove(hc_engine *, uint32_t id);
void hc__set_free(hc__set *);

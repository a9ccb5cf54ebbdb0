/* SPDX-License-Identifier: Apache-2.0
 *
 * grids.h - grids of ranks: checks and texts.
 */
#pragma once

#include "api/base.h"

#define HC__GRID 240 /* bytes of a text */

/* What a rank says of a grid. `dims` and `periods` may be NULL. */
void hc__grid_text(int ndims, const int *dims, const int *periods, char text[HC__GRID]);
/* OK, or a status (error set) for this call: the World cannot be used, or has no grid. */
int hc__grid_check(const hpccoll_world *, const char *call);

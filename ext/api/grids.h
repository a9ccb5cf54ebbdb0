/* SPDX-License-Identifier: Apache-2.0
 *
 * grids.h - texts of grids.
 */
#ifndef HC_API_GRIDS_H
#define HC_API_GRIDS_H

#define HC__GRID 240 /* bytes of a text */

/* What a rank says of a grid. `dims` and `periods` may be NULL. */
void hc__grid_text(int ndims, const int *dims, const int *periods, char text[HC__GRID]);

#endif

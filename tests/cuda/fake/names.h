/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - prototypes of the fake driver, drawn from the table that it is to fill.
 */
#ifndef FAKE_NAMES_H
#define FAKE_NAMES_H

#include "cuda/driver/driver.h"

#define X(member, symbol, arguments) int fake_##member arguments __asm__(symbol);
HC_DRIVER_FUNCTIONS(X)
#undef X

#endif

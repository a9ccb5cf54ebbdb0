/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.h - the reductions of the program, MINLOC and MAXLOC.
 */
#pragma once

#include "api/calls.h"

/* 1: the number is that of a reduction of the program, of MINLOC or MAXLOC; copies it. */
int hc__op_find(unsigned number, hc_user_reduction *);
/* Checks the reduction of a call that the engine does not have, and its dtype. OK, or a status (error set). */
int hc__op_check(const hc__call *, hpccoll_dtype);

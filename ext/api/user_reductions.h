/* SPDX-License-Identifier: Apache-2.0
 *
 * user_reductions.h - operations with a reduction of the program.
 */
#pragma once

#include "api/calls.h"

/* 1: its reduction is not one of the engine's. */
static inline int hc__call_is_users(const hc__call *call) {
    return call->reduction >= HC_REDUCTION_COUNT && call->operation < HC_OPERATION_COUNT &&
           hc_operation_has(call->operation, HC_OP_REDUCES);
}

int hc__users_now(const hc__call *, hpccoll_world *);
int hc__users_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__users_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);

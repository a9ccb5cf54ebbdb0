/* SPDX-License-Identifier: Apache-2.0
 *
 * refusals.c - calls that a binding of another language refuses, before it can give their arguments to the library.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/list.h"
#include "api/plans.h"

/* OK: the other ranks can be told of a refusal; or a status (error set). */
static int check(hpccoll_operation operation, const char *why, const hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status >= 0 && ((unsigned)operation >= HC_OPERATION_COUNT || !why))
        status = hc__error(HC_INVALID, "there is no operation %d, or why is NULL", (int)operation);
    return status;
}

static int refuse(hpccoll_operation operation, const char *why) {
    return hc__error(HC_INVALID, "%s: %s; nothing was sent", hc_operation_name((int)operation), why);
}

int hpccoll_refuse(hpccoll_operation operation, const char *why, const hpccoll_args *args, hpccoll_world *world) {
    const hc__call call = {.operation = (uint8_t)operation, .args = args};
    int status = check(operation, why, world);
    return status < 0 ? status : hc__call_refused(&call, world, refuse(operation, why));
}

int hpccoll_refuse_init(hpccoll_operation operation, const char *why, hpccoll_world *world) {
    const hc__call call = {.operation = (uint8_t)operation};
    int status = check(operation, why, world);
    return status < 0 ? status : hc__plan_refuse(&call, world, refuse(operation, why));
}

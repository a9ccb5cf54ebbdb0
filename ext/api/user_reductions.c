/* SPDX-License-Identifier: Apache-2.0
 *
 * user_reductions.c - begins and ends the operations of a call whose reduction is a function of the program, or MINLOC
 * or MAXLOC (world/user_reduction.h).
 */
#include "api/calls.h"
#include "api/codes.h"
#include "api/plans.h"
#include "api/requests.h"
#include "api/user_reductions.h"

#include <stdlib.h>

/* The end of a request, or of each start of a plan. */
typedef struct ending {
    hc__after after; /* first, for the cast in of() */
    hc_folding *folding;
} ending;

static hc_folding *of(const hc__after *after) {
    return ((const ending *)(const void *)after)->folding;
}

/* Without a text it is that of the function that has failed (ops.c). */
static int said(int status, const char *why) {
    return status < 0 && *why ? hc__error(status, "%s", why) : status;
}

static int take(hc_folding *f, const hc_handle *h) {
    char why[HC_WHY];
    const hc_piece *result = &h->pieces[0];
    int status = hc__status(h);
    return status < 0 ? status : said(hc_folding_take(f, result->out, result->recv_rows, why), why);
}

static int take_all(hc__after *after, const hc_handle *h) {
    return take(of(after), h);
}

static int take_start(hc__after *after, const hc_handle *h) {
    char why[HC_WHY];
    int status = hc__status(h);
    return status < 0 ? status : said(hc_folding_take_start(of(after), why), why);
}

static void forget(hc__after *after) {
    hc_folding_free(of(after));
    free(after);
}

/* NULL (error set): no memory. */
static ending *new_ending(const hc__call *call, const hc__read *read, enum hc_folding_form form) {
    ending *made = malloc(sizeof *made);
    if (made && hc_folding_new(&read->arguments, &read->place, form, NULL, 0, &made->folding) < 0) {
        free(made);
        made = NULL;
    }
    if (made)
        made->after = (hc__after){form == HC_FOLDING_PLAN ? take_start : take_all, forget};
    else
        hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", hc_operation_name(call->operation));
    return made;
}

/* ---- blocking ------------------------------------------------------------------------------------------------- */

static int one_step(hc_folding *f, const hc__call *call, hpccoll_world *world, const hc__read *read,
                    const hc_folding_step *step) {
    hc_handle *h;
    int status = hc__call_step(call, world, read, step, 1, &h);
    if (status < 0)
        return status;
    while (!hc__await(world, h, UINT64_MAX)) {}
    status = take(f, h);
    int outcome = hc__outcome(world, h, NULL);
    status = outcome < 0 ? outcome : status;
    return status < 0 && hc_folding_leaves(f) ? hc__call_left(call, world, status) : status;
}

static int all_steps(hc_folding *f, const hc__call *call, hpccoll_world *world, const hc__read *read) {
    hc_folding_step step;
    int status = HC_OK;
    while (status >= 0 && hc_folding_next(f, &step))
        status = one_step(f, call, world, read, &step);
    return status;
}

int hc__users_now(const hc__call *given, hpccoll_world *world) {
    hc__call call = *given;
    hc__read read;
    int status = hc__call_check(&call, world, &read);
    if (status < 0)
        return hc__call_refused(&call, world, status);
    ending *made = new_ending(&call, &read, HC_FOLDING_WAITS);
    status = made ? all_steps(made->folding, &call, world, &read) : hc__call_refused(&call, world, HC_NO_MEMORY);
    if (made)
        forget(&made->after);
    hc__read_free(&read);
    return status;
}

/* ---- asynchronous --------------------------------------------------------------------------------------------- */

static int begin(const hc__call *call, hpccoll_world *world, const hc__read *read, hpccoll_request *request) {
    hc_folding_step step;
    hc_handle *h;
    ending *made = new_ending(call, read, HC_FOLDING_ASYNC);
    if (!made)
        return hc__call_refused(call, world, HC_NO_MEMORY);
    hc_folding_next(made->folding, &step);
    int status = hc__call_step(call, world, read, &step, 0, &h);
    if (status < 0) {
        forget(&made->after);
        return status;
    }
    hc__request_hold(request, h, NULL, NULL);
    hc__request_after(request, &made->after);
    return HC_OK;
}

int hc__users_async(const hc__call *given, hpccoll_world *world, hpccoll_request **request) {
    hc__call call = *given;
    hc__read read;
    if (!request)
        return hc__call_refused(
            &call, world,
            hc__error(HC_INVALID, "%s: request is NULL; nothing was sent", hc_operation_name(call.operation)));
    *request = NULL;
    int status = hc__call_check(&call, world, &read);
    if (status < 0)
        return hc__call_refused(&call, world, status);
    hpccoll_request *made = hc__request_new(world);
    status = made ? begin(&call, world, &read, made)
                  : hc__call_refused(&call, world, hc__error(HC_NO_MEMORY, "no memory for a request"));
    hc__read_free(&read);
    if (status >= 0)
        *request = made;
    else if (made)
        hc__request_drop(made);
    return status;
}

/* ---- persistent ----------------------------------------------------------------------------------------------- */

static int init(const hc__call *call, hpccoll_world *world, const hc__read *whole, hpccoll_plan **plan) {
    hc_folding_step step;
    ending *made = new_ending(call, whole, HC_FOLDING_PLAN);
    if (!made)
        return hc__plan_refuse(call, world, HC_NO_MEMORY);
    hc_folding_plan(made->folding, &step);
    const hc__read given = {.arguments = step.arguments, .place = whole->place};
    int status = hc__plan_make(call, world, &given, whole, plan);
    if (status < 0)
        forget(&made->after);
    else
        (*plan)->after = &made->after;
    return status;
}

int hc__users_plan(const hc__call *given, hpccoll_world *world, hpccoll_plan **plan) {
    hc__call call = *given;
    hc__read whole;
    int status = hc__plan_check(world, plan);
    if (status < 0)
        return status;
    status = hc__call_check(&call, world, &whole);
    if (status < 0)
        return hc__plan_refuse(&call, world, status);
    status = init(&call, world, &whole, plan);
    hc__read_free(&whole);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h - the arguments of a public function, and the request that is made of them.
 */
#pragma once

#include "api/base.h"
#include "world/arguments.h"
#include "world/user_reduction.h"

/* The arguments of a public function. */
typedef struct hc__call {
    uint8_t operation, reduction;
    int root; /* if it has a root */
    const hpccoll_array *arrays;
    int n;
    uint8_t is_group, is_last, may_allocate;
    int64_t out_count; /* if rows may differ between ranks */
    const int64_t *splits;
    int64_t *counts; /* receives the rows of each rank */
    const hpccoll_args *args;
} hc__call;

/* The same arguments as structs of world/arguments.h. */
typedef struct hc__read {
    hc_arguments arguments;
    hc_place place;
    hc_operand two[2], *operands; /* a group's `operands` are allocated */
    hc_user_reduction user;       /* if `arguments` have one */
} hc__read;
/* OK, or NO_MEMORY (error set). */
int hc__call_read(const hc__call *, const hpccoll_world *, hc__read *);
void hc__read_free(hc__read *);
/* Fills in absent arguments, reads them, and makes all checks that this rank can make alone: OK, and the caller calls
 * hc__read_free(); or a status (error set). */
int hc__call_check(hc__call *, const hpccoll_world *, hc__read *);
static inline int hc__nothing_in_flight(const hpccoll_world *world) {
    hc_job *job = world->base->job;
    return hc_in_flight_none(&job->in_flight, job->loop, world->base->calls.pending);
}
/* Makes the handle of checked arguments with a copy of the name; NULL (error set): no memory. */
hc_handle *hc__call_handle(const hc__call *, const hc__read *, const char *name, int length);
/* Checks the call and submits it to the loop: OK and its handle, or a status (error set), and nothing was sent. The
 * handle is NULL if a shortcut has done the call, which it may do for an unnamed call whose caller waits. */
int hc__call_begin(const hc__call *, hpccoll_world *, int waits, hc_handle **);
/* The same for a step of a checked call with a reduction of the program; `read` has the arguments of the call. */
int hc__call_step(const hc__call *, hpccoll_world *, const hc__read *read, const hc_folding_step *step, int waits,
                  hc_handle **);
/* Call it after this rank has refused the call (error set): it tells the other ranks if the call has no name. Returns
 * the status. */
int hc__call_refused(const hc__call *, hpccoll_world *, int status);
/* The same after an operation of the call, when the other ranks have begun the next one: they wait for this rank, also
 * if the call has a name. */
int hc__call_left(const hc__call *, hpccoll_world *, int status);
/* Begins the call and waits. */
int hc__call_now(const hc__call *, hpccoll_world *);
int hc__call_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__call_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);
/* Checks the World and the address for a plan, and sets *plan to NULL. OK, or a status (error set). */
int hc__plan_check(const hpccoll_world *, hpccoll_plan **);
/* Makes a plan of `given` with all ranks, which compare `whole`. OK, or a status (error set). */
int hc__plan_make(const hc__call *, hpccoll_world *, const hc__read *given, const hc__read *whole, hpccoll_plan **);

/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.c - persistent operations of hpccoll.h: init, start, wait, free.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/list.h"
#include "api/messages.h"
#include "api/parts.h"
#include "api/plans.h"
#include "api/python_world.h"
#include "api/requests.h"
#include "api/sets.h"

#include "world/segments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- init -------------------------------------------------------------------------------------------------- */

static int start_call(hpccoll_plan *plan, int waits) {
    return plan->world->base->calls.plan_start(plan->c, waits);
}

static int test_call(const hpccoll_plan *plan) {
    return plan->world->base->calls.plan_test(plan->c);
}

static void wait_for_call(const hpccoll_plan *plan) {
    const hc_loop_calls *calls = &plan->world->base->calls;
    if (!calls->plan_poll(plan->c))
        while (!calls->plan_wait(plan->c, UINT64_MAX)) {}
}

static int outcome_of_call(hpccoll_plan *plan) {
    if (plan->handle->op)
        hc__note_message(plan->world, plan->handle, plan->element, plan->from, plan->received);
    return plan->after ? plan->after->finish(plan->after, plan->handle) : hc__status(plan->handle);
}

static const hc__plan_steps steps_of_calls = {start_call, test_call, wait_for_call, outcome_of_call};

/* Builds this rank's plan after all ranks have agreed. */
static int build(hpccoll_plan *plan, const hc__call *call, const hc__read *given, const hc_members *members,
                 const hc_plan_terms *terms, hc_segment *segment) {
    char name[32];
    hpccoll_world *world = plan->world;
    const hpccoll_array byte = {plan->byte, plan->byte, 1, HPCCOLL_UINT8};
    hc__call barrier = *call;
    hc__read read;
    if (terms->agreed.is_barrier) {
        barrier.operation = HC_ALLREDUCE;
        barrier.reduction = HC_MAX;
        barrier.arrays = &byte;
        barrier.n = 1;
        hc__call_read(&barrier, world, &read); /* one array needs no memory */
        given = &read;
    }
    int length = snprintf(name, sizeof name, "plan %u", terms->generation);
    plan->handle = hc__call_handle(call, given, name, length);
    if (!plan->handle)
        return HC_NO_MEMORY;
    plan->steps = &steps_of_calls;
    int status = world->base->calls.plan_build(world->base->job, members, terms, plan->handle, segment, &plan->c);
    if (status == HC_NO_MEMORY)
        return hc__error(status, "no memory for a plan");
    return status < 0 ? hc__error(status, "no data plane for the plan; is the number of its tags beyond what the net "
                                          "has? Free some plans")
                      : HC_OK;
}

static int make_segment(hpccoll_world *world, const hc_plan_terms *terms, hc_segment *segment) {
    char what[32];
    size_t bytes = hc_plan_segment_bytes(&terms->agreed);
    *segment = (hc_segment){.fd = -1};
    if (!bytes)
        return HC_OK;
    snprintf(what, sizeof what, "plan-%u", terms->generation);
    char why[HC_EXCHANGE_WHY];
    const hc_exchange exchange = hc__exchange_of(world);
    int status = hc_members_segment(world->base->job, &exchange, what, world->members, world->size, bytes, segment,
                                    why);
    hc_segment_close_file(segment); /* a program may have more plans than files */
    return status < 0 && *why ? hc__error(status, "%s", why) : status;
}

/* Notes which memory the plan uses. */
static int note_memory(hpccoll_plan *plan, const hc__read *given, int is_barrier) {
    const hc_arguments *a = &given->arguments;
    const hc_handle *handle = plan->handle;
    hc_extent *extents = malloc((2 * (size_t)a->n + 1) * sizeof *extents);
    char words[HC_PLAN_WORDS];
    snprintf(words, sizeof words, "%s '%.*s'", hc_operation_name(handle->request.operation),
             (int)handle->request.name_len, handle->request.name);
    if (extents)
        plan->memory = hc_plan_memory_new(&plan->world->base->job->plans, extents,
                                          is_barrier ? 0 : hc_arguments_extents(a, &given->place, extents),
                                          a->operation, words);
    free(extents);
    return plan->memory ? HC_OK : hc__error(HC_NO_MEMORY, "no memory for a plan");
}

static void tell_counts(const hc__call *call, const hc_plan_agreed *agreed) {
    for (int32_t rank = 0; call->counts && rank < agreed->size; rank++)
        call->counts[rank] = hc_plan_rows_from(agreed, rank, agreed->rank);
}

/* All ranks take the same steps, also if one of them fails. */
static int make(hpccoll_plan *plan, const hc__call *call, const hc__read *given, const hc__read *whole) {
    hpccoll_world *world = plan->world;
    hc_members members;
    hc_plan_terms terms = {0};
    hc_segment segment;
    int status = hc_members_find(world->base->job, world->members, world->size, &members);
    status = status < 0 ? hc__error(status, NULL) : hc__plan_agree(given, whole, world, members.nodes, &terms);
    if (status >= 0) {
        hc_job_note_generation(world->base->job, terms.generation);
        status = make_segment(world, &terms, &segment);
    }
    if (status >= 0) {
        int built = build(plan, call, given, &members, &terms, &segment);
        if (built < 0)
            hc_segment_close(&segment);
        else
            built = note_memory(plan, given, terms.agreed.is_barrier);
        status = hc__agree(world, built, hpccoll_last_error());
    }
    if (status >= 0) {
        plan->number = terms.number;
        tell_counts(call, &terms.agreed);
        hc__plan_link(plan);
    }
    free(terms.memory);
    hc_members_free(&members);
    return status;
}

int hc__plan_check(const hpccoll_world *world, hpccoll_plan **plan) {
    int status = hc__world_check(world);
    if (status >= 0 && !plan)
        status = hc__error(HC_INVALID, "the place for the plan is NULL");
    if (plan)
        *plan = NULL;
    return status;
}

int hc__plan_make(const hc__call *call, hpccoll_world *world, const hc__read *given, const hc__read *whole,
                  hpccoll_plan **plan) {
    hpccoll_plan *made = hc__plan_new(world);
    int status = made ? make(made, call, given, whole) : HC_NO_MEMORY;
    if (status >= 0)
        *plan = made;
    else if (made) {
        hc__plan_give_back(made);
        hc__plan_rest(made);
    }
    return status;
}

/* Copies the arrays of a group that have this dtype, and returns their number. */
static int choose_dtype(const hc__call *call, hpccoll_dtype dtype, hpccoll_array *found) {
    int n = 0;
    for (int i = 0; i < call->n; i++)
        if (call->arrays[i].dtype == dtype)
            found[n++] = call->arrays[i];
    return n;
}

static int part_of_group(const hc__call *part, hpccoll_world *world, const hc__read *whole, hpccoll_plan **plan) {
    hc__read given;
    int status = hc__call_read(part, world, &given);
    if (status < 0)
        return hc__plan_refuse(part, world, status);
    given.arguments.wire = whole->arguments.wire;
    status = hc__plan_make(part, world, &given, whole, plan);
    hc__read_free(&given);
    return status;
}

/* Makes one plan per dtype of a group. All ranks make the same plans, because each plan compares the whole group. */
static int several_dtypes(const hc__call *call, hpccoll_world *world, const hc__read *whole, hpccoll_plan **plan) {
    hpccoll_plan *made[HPCCOLL_DTYPES];
    hpccoll_array *arrays = malloc((size_t)call->n * sizeof *arrays);
    int n = 0, status = arrays ? HC_OK : hc__error(HC_NO_MEMORY, "no memory for a plan");
    for (int dtype = 0; dtype < HPCCOLL_DTYPES && status >= 0; dtype++) {
        hc__call part = *call;
        part.arrays = arrays;
        part.n = choose_dtype(call, (hpccoll_dtype)dtype, arrays);
        if (part.n)
            status = part_of_group(&part, world, whole, &made[n]);
        n += part.n && status >= 0;
    }
    free(arrays);
    if (status >= 0)
        status = n == 1 ? (*plan = made[0], HC_OK) : hpccoll_plan_list(n, made, plan);
    for (int i = 0; i < n && status < 0; i++)
        hpccoll_plan_free(&made[i]);
    return status;
}

/* Refuses arrays in device memory (error set). */
static int check_memory(const char *operation, int memory) {
    if (memory == HC_MEMORY_HOST)
        return HC_OK;
    return hc__error(HC_UNSUPPORTED,
                     "%s: an array lies in device memory: plans are for host memory, use the _async form; nothing was "
                     "sent",
                     operation);
}

int hc__call_plan(const hc__call *given, hpccoll_world *world, hpccoll_plan **plan) {
    hc__call call = *given;
    int status = hc__plan_check(world, plan);
    if (status < 0)
        return status;
    hc__read read;
    status = hc__call_check(&call, world, &read);
    if (status < 0)
        return call.operation < HC_OPERATION_COUNT ? hc__plan_refuse(&call, world, status) : status;
    status = call.n ? check_memory(hc_operation_name(call.operation), read.operands->memory) : HC_OK;
    if (status < 0)
        status = hc__plan_refuse(&call, world, status);
    else
        status = call.is_group ? several_dtypes(&call, world, &read, plan)
                               : hc__plan_make(&call, world, &read, &read, plan);
    hc__read_free(&read);
    return status;
}

static int message(void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag,
                   hpccoll_world *world, hpccoll_plan **plan) {
    hc_handle *handle;
    int status = hc__plan_check(world, plan);
    if (status >= 0)
        status = hc__message_handle(data, count, dtype, receives, peer, tag, world, &handle);
    if (status < 0)
        return status;
    status = check_memory(receives ? "recv" : "send", handle->request.memory);
    if (status < 0) {
        hc_handle_release(handle);
        return status;
    }
    hpccoll_plan *made = hc__plan_new(world);
    hc_plan *c = made ? world->base->calls.plan_new(world->base->job->loop, handle, world->size) : NULL;
    if (!c) {
        hc_handle_release(handle);
        if (made)
            hc__plan_rest(made);
        return hc__error(HC_NO_MEMORY, "no memory for a plan");
    }
    made->c = c;
    made->handle = handle;
    made->steps = &steps_of_calls;
    const hc_extent extent = {data, (const char *)data + handle->op->bytes, receives, 0};
    made->memory = hc_plan_memory_new(&world->base->job->plans, &extent, peer != HPCCOLL_PROC_NULL, -1,
                                      receives ? "a receive" : "a send");
    if (!made->memory) {
        hc__plan_give_back(made);
        hc__plan_rest(made);
        return hc__error(HC_NO_MEMORY, "no memory for a plan");
    }
    made->element = hc_dtype_size((int)dtype);
    hc__plan_link(made);
    *plan = made;
    return HC_OK;
}

int hpccoll_send_init(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag, hpccoll_world *world,
                      hpccoll_plan **plan) {
    return message((void *)(uintptr_t)data, count, dtype, 0, dest, tag, world, plan);
}

int hpccoll_recv_init(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from, int64_t *received,
                      hpccoll_world *world, hpccoll_plan **plan) {
    int status = message(data, count, dtype, 1, source, tag, world, plan);
    if (status >= 0) {
        (*plan)->from = from;
        (*plan)->received = received;
    }
    return status;
}

/* ---- start, wait, free ------------------------------------------------------------------------------------- */

static int check(const hpccoll_plan *plan) {
    if (!plan)
        return hc__error(HC_INVALID, "the plan is NULL");
    return plan->state == HC__PLAN_ALIVE ? HC_OK : hc__error(HC_INVALID, "the plan was freed: make another one");
}

static int is_active(const hpccoll_plan *plan) {
    int active = plan->started;
    for (int i = 0; i < plan->n; i++)
        active |= is_active(plan->parts[i]);
    return active;
}

static int refuse_started(const hpccoll_plan *plan) {
    return hc__error(HC_INVALID, "the plan was started and is not over: wait for it first%s%s",
                     plan->handle && !plan->handle->op ? "; it is " : "",
                     plan->handle && !plan->handle->op ? hc_operation_name(plan->handle->request.operation) : "");
}

static int start(hpccoll_plan *plan, int waits) {
    int status = check(plan);
    if (status >= 0)
        status = hc__world_check(plan->world);
    if (status < 0)
        return status;
    if (is_active(plan))
        return refuse_started(plan);
    for (int i = 0; i < plan->n && status >= 0; i++)
        status = start(plan->parts[i], waits);
    if (plan->is_list || status < 0)
        return status;
    const hc__base *base = plan->world->base;
    const hc_plan_memory *other = hc_plan_memory_start(&base->job->plans, plan->memory);
    if (other)
        return hc__error(HC_INVALID,
                         "the plan shares memory with %s, which was started and is not over: wait for that one first",
                         other->words);
    status = plan->steps->start(plan, waits);
    if (status < 0) {
        hc_plan_memory_end(plan->memory);
        return hc__error(status, "%s", status == HC_BROKEN ? base->calls.broken_text(base->job->loop) : "");
    }
    plan->started = 1;
    return HC_OK;
}

/* Ends a start that is done, and returns its status. */
static int outcome(hpccoll_plan *plan) {
    plan->started = 0;
    hc_plan_memory_end(plan->memory);
    return plan->steps->outcome(plan);
}

int hpccoll_start(hpccoll_plan *plan) {
    return start(plan, 0);
}

int hpccoll_startall(int n, hpccoll_plan *const plans[]) {
    int status = hc__many_check("startall", n, plans);
    for (int i = 0; i < n && status >= 0; i++)
        status = start(plans[i], 0);
    return status;
}

int hpccoll_plan_waitall(int n, hpccoll_plan *const plans[]) {
    int first = hc__many_check("plan_waitall", n, plans);
    if (first < 0)
        return first;
    char text[HC__ERROR_BYTES] = "";
    for (int i = 0; i < n; i++) {
        int status = hpccoll_plan_wait(plans[i]);
        if (status < 0 && first >= 0) {
            first = status;
            strncpy(text, hpccoll_last_error(), sizeof text - 1);
        }
    }
    return first < 0 ? hc__error(first, "%s", text) : HC_OK;
}

/* Ends a start whose World has ended. */
static int ended(hpccoll_plan *plan) {
    plan->started = 0;
    return hc__world_check(plan->world);
}

int hpccoll_plan_wait(hpccoll_plan *plan) {
    int status = check(plan);
    if (status < 0 || plan->is_list)
        return status < 0 ? status : hpccoll_plan_waitall(plan->n, plan->parts);
    if (!plan->started)
        return HC_OK;
    if (!plan->steps)
        return ended(plan);
    plan->steps->wait(plan);
    return outcome(plan);
}

/* 1: done, or not started. */
static int look(const hpccoll_plan *plan) {
    int over = !plan->started || !plan->steps || plan->steps->test(plan);
    for (int i = 0; i < plan->n; i++)
        over &= look(plan->parts[i]);
    return over;
}

/* Makes progress in the Worlds of started plans, which may be several of a list: once for all plans in a row of one
 * World. `driven`: the World of the plan before. Returns that of the last one. */
static const hc__base *progress(const hpccoll_plan *plan, const hc__base *driven) {
    const hc__base *base = plan->world->base;
    for (int i = 0; i < plan->n; i++)
        driven = progress(plan->parts[i], driven);
    if (!plan->started || !base || base == driven)
        return driven;
    base->calls.progress(base->job->loop);
    return base;
}

int hpccoll_plan_test(hpccoll_plan *plan, int *done) {
    int status = check(plan), over;
    if (status < 0)
        return status;
    if (!done)
        return hc__error(HC_INVALID, "done is NULL");
    over = look(plan);
    if (!over) {
        progress(plan, NULL);
        over = look(plan);
    }
    *done = over;
    return over ? hpccoll_plan_wait(plan) : HC_OK;
}

static void release(hpccoll_plan *plan) {
    for (int i = 0; i < plan->n; i++)
        release(plan->parts[i]);
    hc__plan_give_back(plan);
    hc__plan_rest(plan);
}

int hpccoll_plan_free(hpccoll_plan **plan) {
    if (!plan)
        return hc__error(HC_INVALID, "the address of the plan is NULL");
    if (!*plan)
        return HC_OK;
    int status = check(*plan);
    if (status < 0)
        return status;
    if (!look(*plan))
        return refuse_started(*plan);
    release(*plan);
    *plan = NULL;
    return HC_OK;
}

int hpccoll_plan_list(int n, hpccoll_plan *plans[], hpccoll_plan **list) {
    int status = n < 1 || !plans || !list ? hc__error(HC_INVALID, "a list has at least one plan and a place") : HC_OK;
    for (int i = 0; i < n && status >= 0; i++) {
        status = check(plans[i]);
        for (int before = 0; before < i && status >= 0; before++)
            if (plans[before] == plans[i])
                status = hc__error(HC_INVALID, "a plan is there twice, at places %d and %d", before, i);
        if (status >= 0 && is_active(plans[i]))
            status = refuse_started(plans[i]);
    }
    if (status < 0)
        return status;
    hpccoll_plan *made = hc__plan_new(plans[0]->world);
    if (!made)
        return HC_NO_MEMORY;
    made->parts = malloc((size_t)n * sizeof(hpccoll_plan *));
    if (!made->parts) {
        hc__plan_rest(made);
        return hc__error(HC_NO_MEMORY, "no memory for a list of plans");
    }
    made->is_list = 1;
    made->n = n;
    for (int i = 0; i < n; i++) {
        made->parts[i] = plans[i];
        plans[i] = NULL;
    }
    *list = made;
    return HC_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.c - asks for a turn, waits for it, ends it.
 */
#include "cuda/nccl/launch_order.h"

int hc__turn_ask(hc__turn *t) {
    hc_turns *turns = t->turns;
    t->number = ++turns->clock;
    t->agreed = 0;
    t->waiting = 1;
    t->next = turns->first;
    turns->first = t;
    t->proposed = (int64_t)t->number;
    t->piece = (hc_piece){.in = &t->proposed, .out = &t->largest, .count = 1, .row = 1, .scale = 1.0};
    t->batch = (hc_batch){.operation = HC_ALLREDUCE,
                          .reduction = HC_MAX,
                          .dtype = HC_INT64,
                          .wire_dtype = HC_INT64,
                          .root = -1,
                          .divisor = 1,
                          .count = 1,
                          .npieces = 1,
                          .pieces = &t->piece};
    return t->host->ops->start(t->host, &t->batch);
}

static int agree(hc__turn *t) {
    int status = t->host->ops->test(t->host);
    if (status != HC_DONE)
        return status;
    t->agreed = 1;
    t->number = (uint64_t)t->largest;
    if (t->turns->clock < t->number)
        t->turns->clock = t->number;
    return HC_DONE;
}

/* A number that was proposed only grows until it is agreed. */
static int is_first(const hc__turn *t) {
    for (const hc__turn *other = t->turns->first; other; other = other->next)
        if (other->number < t->number || (other->number == t->number && other->set < t->set))
            return 0;
    return 1;
}

int hc__turn_test(hc__turn *t) {
    int status = t->agreed ? HC_DONE : agree(t);
    return status == HC_DONE && !is_first(t) ? HC_IDLE : status;
}

void hc__turn_drop(hc__turn *t) {
    if (!t->waiting)
        return;
    hc__turn **link = &t->turns->first;
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    t->waiting = 0;
}

void hc__turn_end(hc__turn *t, hc_gpu_event launched) {
    hc__turn_drop(t);
    t->turns->launched = launched;
}

void hc__turn_forget(hc__turn *t, hc_gpu_event launched) {
    hc__turn_drop(t);
    if (t->turns && t->turns->launched == launched)
        t->turns->launched = NULL;
}

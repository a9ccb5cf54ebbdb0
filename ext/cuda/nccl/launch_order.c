/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.c - gets a place in the order of launches, waits for its turn, releases it.
 */
#include "cuda/nccl/launch_order.h"

int hc__launch_slot_ask(hc__launch_slot *t) {
    hc_launch_order *order = t->order;
    t->number = ++order->clock;
    t->agreed = 0;
    t->waiting = 1;
    t->next = order->first;
    order->first = t;
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

static int agree(hc__launch_slot *t) {
    int status = t->host->ops->test(t->host);
    if (status != HC_DONE)
        return status;
    t->agreed = 1;
    t->number = (uint64_t)t->largest;
    if (t->order->clock < t->number)
        t->order->clock = t->number;
    return HC_DONE;
}

/* The agreed number is at least the proposed one, so a batch with a larger proposal cannot come first. */
static int is_first(const hc__launch_slot *t) {
    for (const hc__launch_slot *other = t->order->first; other; other = other->next)
        if (other->number < t->number || (other->number == t->number && other->set < t->set))
            return 0;
    return 1;
}

int hc__launch_slot_test(hc__launch_slot *t) {
    int status = t->agreed ? HC_DONE : agree(t);
    return status == HC_DONE && !is_first(t) ? HC_IDLE : status;
}

void hc__launch_slot_drop(hc__launch_slot *t) {
    if (!t->waiting)
        return;
    hc__launch_slot **link = &t->order->first;
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    t->waiting = 0;
}

void hc__launch_slot_end(hc__launch_slot *t, hc_gpu_event launched) {
    hc__launch_slot_drop(t);
    t->order->launched = launched;
}

void hc__launch_slot_forget(hc__launch_slot *t, hc_gpu_event launched) {
    hc__launch_slot_drop(t);
    if (t->order && t->order->launched == launched)
        t->order->launched = NULL;
}

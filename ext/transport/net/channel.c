/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.c - the frame of the algorithms: converts the type before and after, and runs the rounds.
 *
 * Sums are formed in the accumulation type, divided there for a mean, and rounded at the end, or before the result is
 * sent. So all members hold equal bits, whatever the algorithm.
 */
#include "transport/net/channel.h"

#include <stdlib.h>
#include <string.h>

void hc__channel_init(hc__channel *a, const hc__team *team, const hc__net_model *model, int32_t tag) {
    memset(a, 0, sizeof *a);
    a->team = team;
    a->model = *model;
    a->tag = tag;
    a->bundle.net = team->net;
    a->bundle.whole = team->arithmetic->whole_messages;
}

/* ---- memory and arithmetic --------------------------------------------------------------------------- */

static void *take(const hc__team *t, int64_t bytes) {
    return t->arithmetic->ops->alloc(t->arithmetic, (size_t)bytes);
}

static void give(const hc__team *t, void *memory) {
    if (memory)
        t->arithmetic->ops->release(t->arithmetic, memory);
}

/* The algorithms do not see a failure of the arithmetic; the frame checks after every round. */
static void note_issued(hc__channel *a, int status) {
    a->failed = status < 0 ? status : a->failed;
    a->awaits = a->team->arithmetic->issued;
}

static void convert(hc__channel *a, void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    hc_arithmetic *arithmetic = a->team->arithmetic;
    note_issued(a, arithmetic->ops->convert(arithmetic, to, to_dtype, from, from_dtype, n));
}

hc__reduction hc__reduction_of(const hc__channel *a, int last) {
    return last || a->reduction.reduction != HC_AVERAGE ? a->reduction : (hc__reduction){HC_SUM, 1.0};
}

void hc__add_up(hc__channel *a, void *to, const void *const *from, int n_from, int64_t n, hc__reduction r) {
    hc_arithmetic *arithmetic = a->team->arithmetic;
    note_issued(a, arithmetic->ops->reduce(arithmetic, to, from, n_from, a->kind, r.reduction, n, r.divisor));
}

/* HC_DONE: the arithmetic has ended, so a round's messages may be sent, and may be received into its operands. */
static int settle(hc__channel *a) {
    if (!a->bundle.held)
        return HC_DONE;
    int status = a->team->arithmetic->ops->ended(a->team->arithmetic, a->awaits);
    if (status != HC_DONE)
        return status;
    status = hc__bundle_release(&a->bundle);
    return status < 0 ? status : HC_DONE;
}

static int reserve(const hc__team *t, void **at, int64_t *room, int64_t bytes) {
    if (bytes <= *room)
        return HC_OK;
    give(t, *at);
    *at = take(t, bytes);
    *room = *at ? bytes : 0;
    return *at ? HC_OK : HC_NO_MEMORY;
}

/* A partial sum may overflow a type that holds the mean. A member that has all values can repair that (keeps_range). If
 * partial sums are sent, each stage divides them, or the members divide their values by a power of two first, and the
 * sum by the remaining factor. float16 cannot overflow in float32. */
static int overflows(const hc__channel *a) {
    const hc__team *t = a->team;
    int in_two = t->n == 2 || !a->partial; /* only the members' values are sent */
    if (a->reduction.reduction != HC_AVERAGE || a->dtype < HC_FLOAT16 || a->divides)
        return 0;
    return a->dtype == HC_FLOAT16 ? a->partial && a->kind == HC_FLOAT16 : !(in_two && t->arithmetic->keeps_range);
}

static void make_room(hc__channel *a) {
    const hc__team *t = a->team;
    if (!overflows(a))
        return;
    double power = 1.0, all = a->reduction.divisor;
    const void *work = a->work;
    while (power < t->n)
        power *= 2.0;
    a->reduction.divisor = power;
    hc__add_up(a, a->work, &work, 1, a->count, a->reduction);
    a->reduction.divisor = all / power;
}

int hc__rounds_start(hc__channel *a, hc__round_fn *round, void *data, int64_t count, int dtype, int kind,
                     hc__reduction reduction, int64_t scratch) {
    const hc__team *t = a->team;
    a->round = round;
    a->data = data;
    a->count = count;
    a->dtype = (uint8_t)dtype;
    a->kind = (uint8_t)kind;
    a->reduction = reduction;
    a->next_round = 0;
    a->failed = HC_OK;
    a->running = t->n > 1 && count > 0;
    if (!a->running)
        return HC_OK;

    int64_t size = (int64_t)hc_dtype_size(kind);
    int status = reserve(t, &a->scratch_memory, &a->scratch_room, scratch * size);
    if (status == HC_OK && a->kind != dtype)
        status = reserve(t, &a->work_memory, &a->work_room, count * size);
    if (status < 0)
        return status;
    a->scratch = a->scratch_memory;
    a->work = a->kind == dtype ? data : a->work_memory;
    if (a->kind != dtype)
        convert(a, a->work, a->kind, data, dtype, count);
    make_room(a);
    return HC_OK;
}

/* Rounds the result to the type of the data. */
static void deliver(hc__channel *a) {
    int64_t at = a->scatters ? a->bounds[a->team->me] : 0;
    int64_t n = a->scatters ? a->bounds[a->team->me + 1] - at : a->count;
    convert(a, (char *)a->data + at * (int64_t)hc_dtype_size(a->dtype), a->dtype,
            a->work + at * (int64_t)hc_dtype_size(a->kind), a->kind, n);
}

int hc__channel_test(hc__channel *a) {
    int moved = 0;
    while (a->running) {
        int status = settle(a);
        if (status == HC_DONE)
            status = hc__bundle_test(&a->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        moved = 1;
        a->bundle.held = 1;
        status = a->round(a, a->next_round++);
        if (status == HC_DONE && a->kind != a->dtype)
            deliver(a);
        if (status < 0 || a->failed < 0)
            return status < 0 ? status : a->failed;
        a->running = status != HC_DONE;
    }
    return HC_DONE;
}

void hc__channel_abandon(hc__channel *a) {
    hc__bundle_cancel(&a->bundle);
    a->running = 0;
}

void hc__channel_free(hc__channel *a) {
    hc__bundle_free(&a->bundle);
    hc_free(a->bounds);
    a->bounds = NULL;
    if (a->bundle.stuck)
        return; /* the library may still read or write them, so they are not reused */
    give(a->team, a->work_memory);
    give(a->team, a->scratch_memory);
    a->work_memory = a->scratch_memory = NULL;
    a->work_room = a->scratch_room = 0;
}

/* ---- for all algorithms ------------------------------------------------------------------------------ */

int64_t hc__part_of(const hc__channel *a, int32_t i) {
    return a->scatters ? a->bounds[i] : hc__even_part(a->count, a->team->n, i);
}

int hc__send_part(hc__channel *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_send(&a->bundle, a->team->peers[member], a->tag, a->work + at * size, n * size);
}

int hc__receive_part(hc__channel *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_receive(&a->bundle, a->team->peers[member], a->tag, a->work + at * size, n * size);
}

int hc__receive_scratch(hc__channel *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_receive(&a->bundle, a->team->peers[member], a->tag, a->scratch + at * size, n * size);
}

void hc__combine(hc__channel *a, int64_t at, int64_t n, int first, int last) {
    if (n == 0)
        return;
    char *mine = a->work + at * (int64_t)hc_dtype_size(a->kind);
    const void *from[2] = {first ? a->scratch : mine, first ? mine : a->scratch};
    hc__add_up(a, mine, from, 2, n, hc__reduction_of(a, last));
}

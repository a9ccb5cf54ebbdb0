/* SPDX-License-Identifier: Apache-2.0
 *
 * net_allreduce.c - the frame of the allreduce algorithms: types in and out, rounds in between.
 *
 * Where roundings happen: sums are formed in the accumulation type, and rounded once, at the end, by each member or
 * before it is sent. So all members hold equal bits, whatever the algorithm.
 */
#include "net.h"

#include <string.h>

static int (*const rounds[])(hc__allreduce *, int32_t) = {
    [HC__RECURSIVE_DOUBLING] = hc__round_recursive_doubling,
    [HC__DIRECT] = hc__round_direct,
    [HC__RING] = hc__round_ring,
    [HC__RABENSEIFNER] = hc__round_rabenseifner,
};

void hc__allreduce_init(hc__allreduce *a, const hc__team *team, const hc__net_model *model, int32_t tag) {
    memset(a, 0, sizeof *a);
    a->team = team;
    a->model = *model;
    a->tag = tag;
    a->bundle.net = team->net;
}

static int reserve(const hc_memory *memory, void **at, int64_t *room, int64_t bytes) {
    if (bytes <= *room)
        return HC_OK;
    if (*at)
        memory->release(*at);
    *at = memory->alloc((size_t)bytes);
    *room = *at ? bytes : 0;
    return *at ? HC_OK : HC_NO_MEMORY;
}

/* What is received and not yet summed. */
static int64_t scratch_elements(const hc__allreduce *a) {
    int32_t n = a->team->n;
    if (a->whole)
        return a->count * (n - 1);
    int64_t parts = hc__part(a->count, n, 1) * n;
    return parts > a->count ? parts : a->count;
}

int hc__allreduce_start(hc__allreduce *a, void *data, int64_t count, int dtype, int reduction,
                        int algorithm) {
    const hc__team *t = a->team;
    if (algorithm == HC__AUTO)
        algorithm = hc__net_choose(&a->model, t->n, count, dtype);
    a->round = rounds[algorithm];
    a->data = data;
    a->count = count;
    a->dtype = (uint8_t)dtype;
    a->kind = (uint8_t)(algorithm == HC__DIRECT ? dtype : hc__accumulation_dtype(dtype));
    a->reduction = (uint8_t)(reduction == HC_AVERAGE ? HC_SUM : reduction);
    a->whole = algorithm == HC__DIRECT && hc__direct_whole(&a->model, t->n, count, dtype);
    a->next_round = 0;
    a->running = t->n > 1 && count > 0;
    if (!a->running)
        return HC_OK;

    int64_t size = (int64_t)hc_dtype_size(a->kind);
    int status = reserve(t->memory, &a->scratch_memory, &a->scratch_room, scratch_elements(a) * size);
    if (status == HC_OK && a->kind != dtype)
        status = reserve(t->memory, &a->work_memory, &a->work_room, count * size);
    if (status < 0)
        return status;
    a->scratch = a->scratch_memory;
    a->work = a->kind == dtype ? data : a->work_memory;
    if (a->kind != dtype)
        t->memory->convert(a->work, a->kind, data, dtype, count, 1.0);
    return HC_OK;
}

int hc__allreduce_test(hc__allreduce *a) {
    int moved = 0;
    while (a->running) {
        int status = hc__bundle_test(&a->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        moved = 1;
        status = a->round(a, a->next_round++);
        if (status < 0)
            return status;
        if (status == HC_DONE) {
            if (a->kind != a->dtype)
                a->team->memory->convert(a->data, a->dtype, a->work, a->kind, a->count, 1.0);
            a->running = 0;
        }
    }
    return HC_DONE;
}

void hc__allreduce_abandon(hc__allreduce *a) {
    hc__bundle_cancel(&a->bundle);
    a->running = 0;
}

void hc__allreduce_free(hc__allreduce *a) {
    hc__bundle_free(&a->bundle);
    if (a->bundle.stuck)
        return; /* the library may still read or write them: better lost than reused */
    if (a->work_memory)
        a->team->memory->release(a->work_memory);
    if (a->scratch_memory)
        a->team->memory->release(a->scratch_memory);
    a->work_memory = a->scratch_memory = NULL;
    a->work_room = a->scratch_room = 0;
}

/* ---- what the algorithms share ---------------------------------------------------------------------- */

int hc__send_part(hc__allreduce *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_send(&a->bundle, a->team->peers[member], a->tag, a->work + at * size, n * size);
}

int hc__receive_part(hc__allreduce *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_receive(&a->bundle, a->team->peers[member], a->tag, a->work + at * size, n * size);
}

int hc__receive_scratch(hc__allreduce *a, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    return hc__bundle_receive(&a->bundle, a->team->peers[member], a->tag, a->scratch + at * size, n * size);
}

void hc__combine(hc__allreduce *a, int64_t at, int64_t n, int first) {
    if (n == 0)
        return;
    char *mine = a->work + at * (int64_t)hc_dtype_size(a->kind);
    const void *from[2] = {first ? a->scratch : mine, first ? mine : a->scratch};
    a->team->memory->reduce(mine, a->kind, from, 2, a->kind, a->reduction, n, 1.0);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - process sets made of a World's ranks. Operations of that World make the exchanges between the ranks.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/list.h"
#include "api/parts.h"
#include "api/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An allgather of all ranks' values, under a name reserved for the library. */
int hc__exchange(hpccoll_world *world, const char *name, const void *mine, size_t bytes, void *all) {
    const hpccoll_args args = {
        .name = name, .prescale = 1, .postscale = 1, .compression = HPCCOLL_NO_COMPRESSION, .row = (int64_t)bytes};
    const hpccoll_array array = {.in = mine, .out = all, .count = (int64_t)bytes, .dtype = HPCCOLL_UINT8};
    const hc__call call = {
        .operation = HC_ALLGATHER, .arrays = &array, .n = 1, .out_count = (int64_t)bytes * world->size, .args = &args};
    return hc__call_now(&call, world);
}

int hc__agree(void *of, int status, const char *why) {
    hpccoll_world *world = of;
    struct step {
        int32_t status;
        char why[252];
    } mine = {.status = status}, *all = calloc((size_t)world->size, sizeof mine);
    if (!all)
        return hc__error(HC_NO_MEMORY, NULL);
    snprintf(mine.why, sizeof mine.why, "%s", status >= 0 ? "" : why && *why ? why : hc_status_text(status));
    int outcome = hc__exchange(world, "hpccoll.agreed", &mine, sizeof mine, all);
    for (int32_t rank = 0; rank < world->size && outcome >= 0; rank++)
        if (all[rank].status < 0)
            outcome = hc__error(all[rank].status, "rank %d: %s", (int)rank, all[rank].why);
    free(all);
    return outcome;
}

/* The free set numbers and the newest generation, of one rank or common to all. */
typedef struct numbers {
    hc_set_numbers free;
    uint64_t generation;
} numbers;

/* Returns the number of the new sets: the lowest that is free on all ranks. */
static int agree_number(hpccoll_world *world, uint32_t *generation) {
    hc__base *base = world->base;
    numbers mine = {.generation = hc_job_used(base->job).generation}, *all = calloc((size_t)world->size, sizeof mine),
            common;
    mine.free = hc_job_free_sets(base->job);
    if (!all)
        return hc__error(HC_NO_MEMORY, NULL);
    int status = hc__exchange(world, "hpccoll.number", &mine, sizeof mine, all);
    common = mine;
    for (int32_t rank = 0; rank < world->size && status >= 0; rank++) {
        for (size_t word = 0; word < HC_MAX_SETS / 64; word++)
            common.free.bits[word] &= all[rank].free.bits[word];
        common.generation = all[rank].generation > common.generation ? all[rank].generation : common.generation;
    }
    free(all);
    *generation = (uint32_t)common.generation + 1;
    hc_job_note_generation(base->job, *generation);
    for (int number = 0; number < HC_MAX_SETS && status >= 0; number++)
        if (common.free.bits[number / 64] >> number % 64 & 1)
            return number;
    return status < 0 ? status
                      : hc__error(HC_TRANSPORT, "all %d process sets that a rank can be in are in use: free some",
                                  HC_MAX_SETS - 1);
}

/* Makes a set of these members (World ranks; size 0: this rank is in no set); all ranks of the World call it. */
static int make(hpccoll_world *world, const int32_t *members, int32_t size, int32_t rank, hpccoll_world **out) {
    hc__base *base = world->base;
    hc__agreement agreement = {hc__agree, world};
    hc_segment segment = {.fd = -1};
    uint32_t generation = 0;
    int number = agree_number(world, &generation);
    if (number < 0)
        return number;
    int status = hc__set_segment(base, (uint32_t)number, members, size, agreement, &segment);
    if (status < 0)
        return status;
    if (size)
        status = hc__set_make(base, (uint32_t)number, generation, members, size, &segment);
    if (size && status >= 0 && !(*out = hc__world_new(base, (uint32_t)number, members, size, rank)))
        status = hc__error(HC_NO_MEMORY, NULL);
    if (size && status >= 0)
        hc_job_take_set_number(base->job, number);
    return hc__agree(world, status, hpccoll_last_error());
}

static int check(const hpccoll_world *world, hpccoll_world **out) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    if (!out)
        return hc__error(HC_INVALID, "the place for the new World is NULL");
    *out = NULL;
    return HC_OK;
}

/* Compares the `ranks` arguments of all ranks; first the lengths, because an allgather of different lengths would not
 * tell which rank differs. */
static int compare_ranks(hpccoll_world *world, const int *ranks, int n) {
    int32_t *all = calloc((size_t)world->size * (size_t)(n > 0 ? n + 1 : 1) + 1, sizeof *all);
    int32_t count = n > 0 && ranks ? n : 0; /* check_ranks() reports errors that all ranks share */
    int status = all ? hc__exchange(world, "hpccoll.subset", &count, sizeof count, all) : hc__error(HC_NO_MEMORY, NULL);
    for (int32_t r = 0; r < world->size && status >= 0; r++)
        if (all[r] != all[0])
            status = hc__error(HC_MISMATCH, "subset: rank 0 says %d ranks, rank %d says %d", (int)all[0], (int)r,
                               (int)all[r]);
    if (status >= 0 && count)
        status = hc__exchange(world, "hpccoll.subset ranks", ranks, (size_t)count * sizeof *ranks, all);
    for (int32_t r = 0; r < world->size && status >= 0 && count; r++)
        for (int i = 0; i < count && status >= 0; i++)
            if (all[r * count + i] != all[i])
                status = hc__error(HC_MISMATCH, "subset: at place %d rank 0 says %d, rank %d says %d", i, (int)all[i],
                                   (int)r, (int)all[r * count + i]);
    free(all);
    return status;
}

static int check_ranks(const hpccoll_world *world, const int *ranks, int n) {
    if (n < 1 || n > world->size || !ranks)
        return hc__error(HC_INVALID, "subset of %d ranks: needs 1 to %d", n, (int)world->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->size)
            return hc__error(HC_INVALID, "subset: %d is no rank from 0 to %d", ranks[i], (int)world->size - 1);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return hc__error(HC_INVALID, "subset: rank %d is there twice", ranks[i]);
    }
    return HC_OK;
}

int hpccoll_subset(hpccoll_world *world, const int *ranks, int n, hpccoll_world **subset) {
    int status = check(world, subset);
    if (status < 0 || (status = compare_ranks(world, ranks, n)) < 0 || (status = check_ranks(world, ranks, n)) < 0)
        return status;
    int32_t *members = malloc((size_t)n * sizeof *members), rank = -1;
    for (int i = 0; members && i < n; i++) {
        members[i] = world->members[ranks[i]];
        rank = ranks[i] == world->rank ? i : rank;
    }
    status = hc__agree(world, members ? HC_OK : HC_NO_MEMORY, NULL);
    if (status >= 0)
        status = make(world, members, rank < 0 ? 0 : n, rank, subset);
    free(members);
    return status;
}

typedef struct choice {
    int32_t color, key;
} choice;

int hpccoll_split(hpccoll_world *world, int color, int key, hpccoll_world **part) {
    int status = check(world, part);
    if (status < 0)
        return status;
    choice mine = {color, key}, *all = calloc((size_t)world->size, sizeof mine);
    int32_t *order = malloc((size_t)world->size * sizeof *order), n = 0, rank = -1;
    status = all && order ? hc__exchange(world, "hpccoll.split", &mine, sizeof mine, all)
                          : hc__error(HC_NO_MEMORY, NULL);
    for (int32_t r = 0; r < world->size && status >= 0; r++) {
        if (all[r].color != color || color == HPCCOLL_UNDEFINED)
            continue;
        int32_t at = n++; /* ordered by key, and then by rank */
        for (; at > 0 && all[order[at - 1]].key > all[r].key; at--)
            order[at] = order[at - 1];
        order[at] = r;
    }
    for (int32_t i = 0; i < n && status >= 0; i++) {
        rank = order[i] == world->rank ? i : rank;
        order[i] = world->members[order[i]];
    }
    if (status >= 0)
        status = make(world, order, n, rank, part);
    free(all);
    free(order);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - process sets made of a World's ranks. Operations of that World make the exchanges between the ranks.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/grids.h"
#include "api/list.h"
#include "api/parts.h"
#include "api/sets.h"
#include "core/fnv.h"
#include "world/set_agreement.h"

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

static int allgather(void *of, const char *name, const void *mine, size_t bytes, void *all) {
    return hc__exchange(of, name, mine, bytes, all);
}

hc_exchange hc__exchange_of(hpccoll_world *world) {
    return (hc_exchange){allgather, world, world->size};
}

int hc__agree(hpccoll_world *world, int status, const char *why) {
    char text[HC_EXCHANGE_WHY];
    const hc_exchange exchange = hc__exchange_of(world);
    status = hc_exchange_agree(&exchange, status, why, text);
    return status < 0 && *text ? hc__error(status, "%s", text) : status;
}

/* Agrees on sets. An outcome (enum hc_sets_outcome), or a status (error set). */
static int agree(hpccoll_world *world, hc_sets_call *call, hc_sets_made *made) {
    const hc_exchange exchange = hc__exchange_of(world);
    char why[HC_WHY];
    call->ranks = world->members;
    call->size = world->size;
    call->own = world->rank;
    int outcome = hc_sets_agree(world->base->job, call, &exchange, made, why);
    return outcome < 0 && *why ? hc__error(outcome, "%s", why) : outcome;
}

/* Threads wait for each other here. Returns whether this one has waited: then its call may meet that of another thread
 * on another rank, so it is an error on all ranks. */
static uint8_t take_turn(hpccoll_world *world, enum hc__maker maker) {
    if (pthread_mutex_trylock(&world->turns[maker]) == 0)
        return 0;
    pthread_mutex_lock(&world->turns[maker]);
    return 1;
}

static int leave(hpccoll_world *world, enum hc__maker maker, hc_sets_made *made, int status) {
    pthread_mutex_unlock(&world->turns[maker]);
    free(made->members);
    return status;
}

/* Makes the set that was agreed on, if this rank is in one. */
static int make(hpccoll_world *world, const hc_sets_made *made, hpccoll_world **out) {
    hc__base *base = world->base;
    if (made->size == 0)
        return HC_OK;
    int status = hc__set_make(base, made->number, made->generation, made->members, made->size, NULL);
    if (status >= 0 && !(*out = hc__world_new(base, made->number, made->members, made->size, made->rank)))
        status = hc__error(HC_NO_MEMORY, NULL);
    if (status < 0)
        base->calls.sets_fail(base->job, made->number, status, hpccoll_last_error());
    return status;
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
    int32_t count = n > 0 && ranks ? n : 0; /* find_wrong() reports errors that all ranks share */
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

/* INVALID, and why these are no ranks of a subset; or OK. */
static int find_wrong(const hpccoll_world *world, const int *ranks, int n, char why[HC__ERROR_BYTES]) {
    if (n < 1 || n > world->size || !ranks) {
        snprintf(why, HC__ERROR_BYTES, "subset of %d ranks: needs 1 to %d", n, (int)world->size);
        return HC_INVALID;
    }
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->size) {
            snprintf(why, HC__ERROR_BYTES, "subset: %d is no rank from 0 to %d", ranks[i], (int)world->size - 1);
            return HC_INVALID;
        }
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i]) {
                snprintf(why, HC__ERROR_BYTES, "subset: rank %d is there twice", ranks[i]);
                return HC_INVALID;
            }
    }
    return HC_OK;
}

/* What this rank asks for: a place in the set, if it is one of the ranks. Wrong ranks are asked for too, without a
 * place for anybody, so that ranks that differ learn of it. */
static hc_sets_call subset_call(const hpccoll_world *world, const int *ranks, int n, int are_ranks) {
    size_t count = n > 0 && ranks ? (size_t)n : 0;
    hc_sets_call call = {.name = "hpccoll.subset", .digest = hc_fnv(ranks, count * sizeof *ranks)};
    for (int i = 0; are_ranks && i < n; i++)
        if (ranks[i] == world->rank) {
            call.colored = 1;
            call.key = i;
        }
    return call;
}

int hpccoll_subset(hpccoll_world *world, const int *ranks, int n, hpccoll_world **subset) {
    hc_sets_made made = {0};
    char wrong[HC__ERROR_BYTES];
    int status = check(world, subset);
    if (status < 0)
        return status;
    int are_ranks = find_wrong(world, ranks, n, wrong) >= 0;
    hc_sets_call call = subset_call(world, ranks, n, are_ranks);
    call.crowded = take_turn(world, HC__SUBSET);
    status = agree(world, &call, &made);
    if (status == HC_SETS_DIFFER && (status = compare_ranks(world, ranks, n)) >= 0)
        status = hc__error(HC_MISMATCH, "subset: the ranks differ in the ranks that they say");
    if (status >= 0)
        status = are_ranks ? make(world, &made, subset) : hc__error(HC_INVALID, "%s", wrong);
    return leave(world, HC__SUBSET, &made, status);
}

/* Compares the grids of all ranks, as texts. */
static int compare_grids(hpccoll_world *world, const char mine[HC__GRID]) {
    char (*all)[HC__GRID] = calloc((size_t)world->size, sizeof *all);
    int status = all ? hc__exchange(world, "hpccoll.cart grids", mine, sizeof *all, all)
                     : hc__error(HC_NO_MEMORY, NULL);
    for (int32_t r = 1; r < world->size && status >= 0; r++)
        if (strncmp(all[r], all[0], sizeof *all) != 0)
            status = hc__error(HC_MISMATCH, "cart_create: rank 0 says %.*s, rank %d says %.*s", HC__GRID, all[0],
                               (int)r, HC__GRID, all[r]);
    free(all);
    return status < 0 ? status : hc__error(HC_MISMATCH, "cart_create: the ranks differ in the grids that they say");
}

int hpccoll_cart_create(hpccoll_world *world, int ndims, const int *dims, const int *periods, hpccoll_world **cart) {
    hc_sets_made made = {0};
    char text[HC__GRID];
    int status = check(world, cart);
    if (status < 0)
        return status;
    hc_grid *grid = calloc(1, sizeof *grid); /* without memory there is no grid, and the other ranks are told */
    int32_t ranks = grid ? hc_grid_make(grid, world->size, dims ? ndims : 0, dims, periods) : 0;
    hc_sets_call call = {.name = "hpccoll.cart", .key = world->rank, .colored = world->rank < ranks};
    call.digest = ranks ? hc_fnv(grid, sizeof *grid) : 0;
    hc__grid_text(ndims, dims, periods, text);
    call.crowded = take_turn(world, HC__CART);
    status = agree(world, &call, &made);
    if (status == HC_SETS_DIFFER)
        status = compare_grids(world, text);
    else if (status >= 0 && !ranks)
        status = hc__error(HC_INVALID, "cart_create of %s: no grid of the %d ranks of the World", text,
                           (int)world->size);
    else if (status >= 0)
        status = make(world, &made, cart);
    if (status >= 0 && *cart)
        (*cart)->grid = grid;
    else
        free(grid);
    return leave(world, HC__CART, &made, status);
}

int hpccoll_split(hpccoll_world *world, int color, int key, hpccoll_world **part) {
    hc_sets_made made = {0};
    int status = check(world, part);
    if (status < 0)
        return status;
    hc_sets_call call = {.name = "hpccoll.split", .key = key, .color = color, .colored = color != HPCCOLL_UNDEFINED};
    call.crowded = take_turn(world, HC__SPLIT);
    status = agree(world, &call, &made);
    if (status >= 0)
        status = make(world, &made, part);
    return leave(world, HC__SPLIT, &made, status);
}

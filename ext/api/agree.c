/* SPDX-License-Identifier: Apache-2.0
 *
 * agree.c - the ranks of a World agree on a plan: by one allgather of what each of them was given.
 */
#include "api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 232 /* bytes of the text of its arrays; what is longer is compared by its hash */
#define EXCHANGE "hpccoll.plan"

/* What a rank says; behind it the rows that it has for each rank. */
typedef struct report {
    int32_t operation, is_group, reduction, root, wire;
    uint32_t generation;
    double prescale, postscale;
    hc_plan_part part;
    uint64_t hash, numbers[HC__PLAN_NUMBERS / 64];
    int32_t status; /* below 0: it has refused the call, and `tensors` says why */
    char tensors[TENSORS];
} report;

static int has(const hc__call *call, int trait) {
    return hc_operation_has(call->operation, trait);
}

static void add_to_hash(uint64_t *hash, int64_t word) {
    *hash = (*hash ^ (uint64_t)word) * 0x100000001b3ull;
    *hash ^= *hash >> 29;
}

/* As "float64[3] int32[*,4]", where * is a number of rows that ranks may differ in. */
static void describe(const hc__call *call, report *mine) {
    size_t len = 0;
    int64_t row = call->args->row;
    const hpccoll_array *arrays = call->group ? call->group : call->arrays;
    int n = call->group ? call->group_n : call->n;
    for (int i = 0; i < call->n; i++)
        mine->part.bytes += call->arrays[i].count * (int64_t)hc_dtype_size((int)call->arrays[i].dtype);
    for (int i = 0; i < n; i++) {
        const hpccoll_array *a = &arrays[i];
        int64_t rows = has(call, HC_OP_ROWS_DIFFER) ? -1 : a->count / (has(call, HC_OP_ELEMENTWISE) ? 1 : row);
        char first[24] = "*", second[24] = "";
        if (rows >= 0)
            snprintf(first, sizeof first, "%" PRId64, rows);
        if (!has(call, HC_OP_ELEMENTWISE) && row > 1)
            snprintf(second, sizeof second, ",%" PRId64, row);
        add_to_hash(&mine->hash, (int64_t)a->dtype);
        add_to_hash(&mine->hash, rows);
        add_to_hash(&mine->hash, row);
        if (len < TENSORS)
            len += (size_t)snprintf(mine->tensors + len, TENSORS - len, "%s%s[%s%s]", i ? " " : "",
                                    hc_dtype_name((int)a->dtype), first, second);
    }
}

static void say(const hc__call *call, int wire, const hpccoll_world *world, report *mine, int64_t *splits) {
    const hpccoll_args *args = call->args;
    *mine = (report){.operation = call->operation, .is_group = call->is_group, .wire = wire};
    mine->reduction = has(call, HC_OP_REDUCES) ? call->reduction : -1;
    mine->root = has(call, HC_OP_ROOTED) ? call->root : -1;
    mine->prescale = has(call, HC_OP_REDUCES) ? args->prescale : 1.0;
    mine->postscale = has(call, HC_OP_REDUCES) ? args->postscale : 1.0;
    mine->generation = world->base->generation;
    mine->part.out_rows = -1;
    describe(call, mine);
    if (call->operation == HC_BARRIER)
        mine->part.bytes = 1; /* of the allreduce that it is */
    if (call->n && !call->is_group)
        mine->part.rows = call->arrays[0].count / args->row;
    int rooted = has(call, HC_OP_ROOTED), to_root = has(call, HC_OP_TO_ROOT), is_root = call->root == world->rank;
    if (has(call, HC_OP_RESULT_ALLOCATED) && (!to_root || is_root))
        mine->part.out_rows = call->out_count / args->row;
    int gives = !rooted || to_root || is_root;
    if (!gives)
        mine->part.rows = mine->part.bytes = 0;
    for (int32_t to = 0; has(call, HC_OP_COUNTS) && gives && to < world->size; to++)
        splits[to] = call->splits ? call->splits[to] : hc_share(mine->part.rows, world->size, to);
    pthread_mutex_lock(&world->base->lock);
    memcpy(mine->numbers, world->base->plan_numbers, sizeof mine->numbers);
    pthread_mutex_unlock(&world->base->lock);
}

/* ---- compared ---------------------------------------------------------------------------------------------- */

/* The first thing in which two reports differ: its name, and how each has it. 0: there is none. */
static const char *differ(const report *a, const report *b, char text_a[64], char text_b[64]) {
#define DIFFERS(name, field, ...)          \
    if (a->field != b->field) {            \
        const report *of = a;              \
        snprintf(text_a, 64, __VA_ARGS__); \
        of = b;                            \
        snprintf(text_b, 64, __VA_ARGS__); \
        return name;                       \
    }
    text_a[0] = text_b[0] = 0;
    if (a->operation != b->operation)
        return "operation";
    DIFFERS("grouping", is_group, "%s", of->is_group ? "in a group" : "alone")
    if (a->hash != b->hash)
        return "tensors";
    DIFFERS("reduction", reduction, "%s", of->reduction < 0 ? "none" : hc_reduction_name(of->reduction))
    DIFFERS("root", root, "root %d", (int)of->root)
    DIFFERS("prescale", prescale, "prescale %g", of->prescale)
    DIFFERS("postscale", postscale, "postscale %g", of->postscale)
    DIFFERS("compression", wire, "compression %s", of->wire == HC_WIRE_SAME ? "none" : hc_dtype_name(of->wire))
#undef DIFFERS
    return NULL;
}

static const report *report_of(const char *all, size_t bytes, int32_t rank) {
    return (const report *)(const void *)(all + (size_t)rank * bytes);
}

static int find_refusal(const char *all, size_t bytes, int32_t size) {
    for (int32_t rank = 0; rank < size; rank++) {
        const report *its = report_of(all, bytes, rank);
        if (its->status < 0)
            return hc__error(HC_MISMATCH, "%s_init: rank %d has refused this call: %s",
                             hc_operation_name(its->operation), (int)rank, its->tensors);
    }
    return HC_OK;
}

static int compare(const char *all, size_t bytes, int32_t size) {
    const report *first = report_of(all, bytes, 0);
    char text_a[64], text_b[64];
    int status = find_refusal(all, bytes, size);
    if (status < 0)
        return status;
    for (int32_t rank = 1; rank < size; rank++) {
        const report *other = report_of(all, bytes, rank);
        const char *what = differ(first, other, text_a, text_b);
        if (what)
            return hc__error(HC_MISMATCH, "%s_init: rank 0 has %s %s%s%s, rank %d has %s %s%s%s (%s differs)",
                             hc_operation_name(first->operation), hc_operation_name(first->operation), first->tensors,
                             *text_a ? " " : "", text_a, (int)rank, hc_operation_name(other->operation), other->tensors,
                             *text_b ? " " : "", text_b, what);
    }
    return HC_OK;
}

static int check_results(const hc_plan_agreed *agreed) {
    for (int32_t rank = 0; rank < agreed->size; rank++) {
        int64_t needs = agreed->parts[rank].out_rows < 0 ? -1 : hc_plan_rows_of(agreed, rank);
        if (agreed->parts[rank].out_rows != needs)
            return hc__error(HC_RESULT_SIZE, "%s_init: on rank %d out has %" PRId64 " rows, the result has %" PRId64,
                             hc_operation_name(agreed->operation), (int)rank, agreed->parts[rank].out_rows, needs);
    }
    return HC_OK;
}

/* The lowest number of tags that none of the ranks uses. */
static int free_number(const char *all, size_t bytes, int32_t size) {
    for (int number = 0; number < HC__PLAN_NUMBERS; number++) {
        uint64_t used = 0;
        for (int32_t rank = 0; rank < size; rank++)
            used |= report_of(all, bytes, rank)->numbers[number / 64] >> number % 64 & 1;
        if (!used)
            return number;
    }
    return hc__error(HC_TRANSPORT, "all %d plans between nodes that there can be are in use: free some",
                     HC__PLAN_NUMBERS);
}

/* ---- agreed ------------------------------------------------------------------------------------------------ */

static int take(const hpccoll_world *world, const char *all, size_t bytes, const int32_t *node_of,
                hc__plan_terms *terms) {
    size_t size = (size_t)world->size;
    const report *first = report_of(all, bytes, 0);
    terms->memory = calloc(size * sizeof(hc_plan_part) + size * size * sizeof(int64_t), 1);
    if (!terms->memory)
        return HC_NO_MEMORY;
    hc_plan_part *parts = (hc_plan_part *)(void *)terms->memory;
    int64_t *splits = (int64_t *)(void *)(parts + size);
    for (size_t rank = 0; rank < size; rank++) {
        const report *one = report_of(all, bytes, (int32_t)rank);
        parts[rank] = one->part;
        memcpy(splits + rank * size, one + 1, size * sizeof *splits);
        terms->generation = one->generation >= terms->generation ? one->generation + 1 : terms->generation;
    }
    int is_barrier = first->operation == HC_BARRIER;
    terms->agreed = (hc_plan_agreed){.operation = (uint8_t)(is_barrier ? HC_ALLREDUCE : first->operation),
                                     .is_barrier = (uint8_t)is_barrier,
                                     .root = first->root,
                                     .rank = world->rank,
                                     .size = world->size,
                                     .node_of = node_of,
                                     .parts = parts,
                                     .splits = splits};
    return HC_OK;
}

int hc__plan_agree(const hc__call *call, int wire, hpccoll_world *world, const int32_t *node_of,
                   hc__plan_terms *terms) {
    size_t bytes = sizeof(report) + (size_t)world->size * sizeof(int64_t);
    char *mine = calloc(1, bytes), *all = calloc((size_t)world->size, bytes);
    *terms = (hc__plan_terms){.number = -1};
    int status = mine && all ? HC_OK : hc__error(HC_NO_MEMORY, NULL);
    if (status >= 0) {
        report *own = (report *)(void *)mine;
        say(call, wire, world, own, (int64_t *)(void *)(own + 1));
        status = hc__exchange(world, EXCHANGE, mine, bytes, all);
        if (status == HC_RESULT_SIZE)
            status = hc__error(HC_MISMATCH, "%s_init: a rank has joined: no plan is made",
                               hc_operation_name(call->operation));
    }
    if (status >= 0)
        status = compare(all, bytes, world->size);
    if (status >= 0) {
        int taken = take(world, all, bytes, node_of, terms);
        status = hc__agree(world, taken, NULL);
    }
    if (status >= 0)
        status = check_results(&terms->agreed);
    if (status >= 0 && hc_plan_crosses(&terms->agreed))
        status = terms->number = free_number(all, bytes, world->size);
    free(mine);
    free(all);
    return status < 0 ? status : HC_OK;
}

int hc__plan_refuse(const hc__call *call, hpccoll_world *world, int status) {
    size_t bytes = sizeof(report) + (size_t)world->size * sizeof(int64_t);
    char why[HC__ERROR_BYTES], *mine = calloc((size_t)world->size + 1, bytes);
    snprintf(why, sizeof why, "%s", hpccoll_last_error());
    if (mine) {
        report *own = (report *)(void *)mine;
        own->operation = call->operation;
        own->status = status;
        snprintf(own->tensors, sizeof own->tensors, "%.*s", TENSORS - 1, why);
        hc__exchange(world, EXCHANGE, mine, bytes, mine + bytes);
    }
    free(mine);
    return hc__error(status, "%s", why);
}

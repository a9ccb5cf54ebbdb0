/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_agreement.c - writes and compares reports about a plan, and derives its terms.
 */
#include "world/plan_agreement.h"

#include "core/fnv.h"
#include "world/user_reduction.h"
#include "world/why.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define has hc_arguments_has
#define refuse hc__refuse
#define TEXT 232 /* bytes of a description of arrays; hashes compare what does not fit */
#define REPORTS "hpccoll.plan"
#define ROWS "hpccoll.plan rows"

typedef struct report {
    int32_t status; /* below 0: the rank has refused its call, and `text` says why */
    int32_t root;
    uint8_t operation, is_group, reduction, wire;
    uint32_t generation;
    double prescale, postscale;
    hc_plan_part part;
    uint64_t shapes, types, user; /* hashes */
    uint64_t numbers[HC_PLAN_NUMBERS / 64];
    char text[TEXT]; /* as "float64[3] int32[*,4]"; * is a number of rows that may differ */
} report;

int hc_plans_between_nodes(const hc_plans_used *used) {
    int n = 0;
    for (int word = 0; word < HC_PLAN_NUMBERS / 64; word++)
        n += __builtin_popcountll(used->numbers[word]);
    return n;
}

/* ---- write ------------------------------------------------------------------------------------------------- */

static void add_to_hash(uint64_t *hash, int64_t word) {
    *hash = hc_fnv_more(*hash, &word, sizeof word);
}

__attribute__((format(printf, 3, 4))) static void append(report *mine, size_t *length, const char *form, ...) {
    va_list values;
    if (*length >= TEXT)
        return;
    va_start(values, form);
    int written = vsnprintf(mine->text + *length, TEXT - *length, form, values);
    va_end(values);
    *length += written > 0 ? (size_t)written : 0;
}

static void describe_array(report *mine, const hc_operand *in, int rows_differ, size_t *length) {
    append(mine, length, "%s%s[", *length ? " " : "", hc_dtype_name(in->dtype));
    add_to_hash(&mine->shapes, in->dtype);
    add_to_hash(&mine->shapes, in->ndim);
    for (int d = 0; d < in->ndim; d++) {
        int64_t dim = !d && rows_differ ? -1 : in->dims[d];
        add_to_hash(&mine->shapes, dim);
        if (dim < 0)
            append(mine, length, "*");
        else
            append(mine, length, "%s%" PRId64, d ? "," : "", dim);
    }
    append(mine, length, "]%s%s", in->type && *in->type ? " of " : "", in->type ? in->type : "");
    mine->types = hc_fnv_more(mine->types, in->type ? in->type : "", in->type ? strlen(in->type) + 1 : 1);
}

/* This rank's part: bytes of all inputs, rows of the first input, and rows of the caller's `out`. */
static hc_plan_part part_of(const hc_arguments *a, const hc_place *place) {
    hc_plan_part part = {.out_rows = -1};
    const hc_operand *first = a->operands;
    if (a->operation == HC_BARRIER)
        part.bytes = 1; /* of the allreduce that implements it */
    for (uint32_t at = 0; at < a->n && hc_arguments_gives(a, place); at++)
        part.bytes += a->operands[2 * at].bytes;
    if (a->n && !a->is_group && first->ndim && hc_arguments_gives(a, place))
        part.rows = first->dims[0];
    if (has(a, HC_OP_RESULT_ALLOCATED) && hc_arguments_gets(a, place) && first[1].ndim)
        part.out_rows = first[1].dims[0];
    return part;
}

static void write_report(const hc_plan_proposal *p, report *mine) {
    const hc_arguments *a = p->whole;
    size_t length = 0;
    *mine = (report){.operation = a->operation,
                     .is_group = a->is_group,
                     .reduction = has(a, HC_OP_REDUCES) ? a->reduction : HC_REDUCTION_COUNT,
                     .wire = p->given->wire,
                     .root = has(a, HC_OP_ROOTED) ? a->root : -1,
                     .generation = p->used->generation,
                     .prescale = a->prescale,
                     .postscale = a->postscale,
                     .part = part_of(p->given, p->place),
                     .shapes = HC_FNV_BASIS,
                     .types = HC_FNV_BASIS,
                     .user = hc_user_reduction_hash(a->user)};
    memcpy(mine->numbers, p->used->numbers, sizeof mine->numbers);
    for (uint32_t at = 0; at < a->n; at++)
        describe_array(mine, &a->operands[2 * at], has(a, HC_OP_ROWS_DIFFER), &length);
    if (a->user)
        append(mine, &length, " with %s%s", a->user->name, a->user->block ? "" : " of whole arrays");
}

/* ---- compare ----------------------------------------------------------------------------------------------- */

/* Returns the name of the first difference between two reports, with both values as texts. NULL: no difference. */
static const char *difference(const report *a, const report *b, char text_a[64], char text_b[64]) {
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
    if (a->shapes != b->shapes)
        return "tensors";
    if (a->types != b->types)
        return "type";
    if (a->user != b->user)
        return "reduction";
    DIFFERS("reduction", reduction, "%s", hc_reduction_name(of->reduction))
    DIFFERS("root", root, "root %d", (int)of->root)
    DIFFERS("prescale", prescale, "prescale %.17g", of->prescale)
    DIFFERS("postscale", postscale, "postscale %.17g", of->postscale)
    DIFFERS("compression", wire, "compression %s", of->wire == HC_WIRE_SAME ? "none" : hc_dtype_name(of->wire))
#undef DIFFERS
    return NULL;
}

static int compare(const report *all, int32_t size, char *why) {
    char text_a[64], text_b[64];
    for (int32_t rank = 0; rank < size; rank++)
        if (all[rank].status < 0)
            return refuse(why, HC_MISMATCH, "%s_init: rank %d has refused this call: %s",
                          hc_operation_name(all[rank].operation), (int)rank, all[rank].text);
    for (int32_t rank = 1; rank < size; rank++) {
        const report *first = all, *other = &all[rank];
        const char *what = difference(first, other, text_a, text_b), *name = hc_operation_name(first->operation);
        if (what)
            return refuse(why, HC_MISMATCH, "%s_init: rank 0 has %s%s%s%s%s, rank %d has %s%s%s%s%s (%s differs)", name,
                          name, *first->text ? " " : "", first->text, *text_a ? " " : "", text_a, (int)rank,
                          hc_operation_name(other->operation), *other->text ? " " : "", other->text, *text_b ? " " : "",
                          text_b, what);
    }
    return HC_OK;
}

static int check_results(const hc_plan_agreed *agreed, char *why) {
    for (int32_t rank = 0; rank < agreed->size; rank++) {
        int64_t has_rows = agreed->parts[rank].out_rows;
        int64_t needs = has_rows < 0 ? -1 : hc_plan_rows_of(agreed, rank);
        if (has_rows != needs)
            return refuse(why, HC_RESULT_SIZE, "%s_init: on rank %d out has %" PRId64 " rows, the result has %" PRId64,
                          hc_operation_name(agreed->operation), (int)rank, has_rows, needs);
    }
    return HC_OK;
}

/* The lowest number of tags that none of the ranks uses, or a status. */
static int free_number(const report *all, int32_t size, char *why) {
    for (int word = 0; word < HC_PLAN_NUMBERS / 64; word++) {
        uint64_t used = 0;
        for (int32_t rank = 0; rank < size; rank++)
            used |= all[rank].numbers[word];
        if (~used)
            return 64 * word + __builtin_ctzll(~used);
    }
    return refuse(why, HC_TRANSPORT, "all %d plans between nodes that there can be are in use: free some",
                  HC_PLAN_NUMBERS);
}

/* ---- agree ------------------------------------------------------------------------------------------------- */

/* Allocates before the exchange, so that a rank without memory can tell the others. */
static void make_room(const hc_plan_proposal *p, hc_plan_terms *terms, report *mine) {
    size_t size = (size_t)p->place->size, counts = has(p->given, HC_OP_COUNTS) ? size * (size + 1) : 0;
    *terms = (hc_plan_terms){.number = -1, .memory = calloc(size * sizeof(hc_plan_part) + counts * sizeof(int64_t), 1)};
    if (!terms->memory) {
        mine->status = HC_NO_MEMORY;
        snprintf(mine->text, sizeof mine->text, "no memory for a plan");
    }
}

static void take(const hc_plan_proposal *p, const report *all, hc_plan_terms *terms) {
    int32_t size = p->place->size;
    hc_plan_part *parts = terms->memory;
    int is_barrier = p->given->operation == HC_BARRIER;
    for (int32_t rank = 0; rank < size; rank++) {
        parts[rank] = all[rank].part;
        if (all[rank].generation >= terms->generation)
            terms->generation = all[rank].generation + 1;
    }
    terms->agreed = (hc_plan_agreed){.operation = is_barrier ? HC_ALLREDUCE : p->given->operation,
                                     .is_barrier = (uint8_t)is_barrier,
                                     .root = all[0].root,
                                     .rank = p->place->rank,
                                     .size = size,
                                     .node_of = p->node_of,
                                     .parts = parts,
                                     .splits = (int64_t *)(void *)(parts + size)};
}

/* Exchanges the rows of each rank for each rank, if the operation counts them. */
static int exchange_rows(const hc_plan_proposal *p, const hc_exchange *exchange, hc_plan_terms *terms) {
    const hc_arguments *a = p->given;
    const hc_plan_agreed *agreed = &terms->agreed;
    int32_t size = agreed->size, rank = agreed->rank;
    int64_t *all = (int64_t *)(uintptr_t)agreed->splits, *mine = all + (int64_t)size * size;
    if (!has(a, HC_OP_COUNTS))
        return HC_OK;
    for (int32_t to = 0; hc_arguments_gives(a, p->place) && to < size; to++)
        mine[to] = a->splits ? a->splits[to] : hc_share(agreed->parts[rank].rows, size, to);
    return exchange->allgather(exchange->of, ROWS, mine, (size_t)size * sizeof *mine, all);
}

static int joined(int status, uint8_t operation, char *why) {
    if (status != HC_RESULT_SIZE)
        return status;
    return refuse(why, HC_MISMATCH, "%s_init: a rank has joined: no plan is made", hc_operation_name(operation));
}

int hc_plan_agree(const hc_plan_proposal *p, const hc_exchange *exchange, hc_plan_terms *terms, char why[HC_WHY]) {
    int32_t size = p->place->size;
    report mine, *all = calloc((size_t)size, sizeof *all);
    why[0] = 0;
    *terms = (hc_plan_terms){.number = -1};
    if (!all)
        return refuse(why, HC_NO_MEMORY, "%s_init: no memory for a plan", hc_operation_name(p->whole->operation));
    write_report(p, &mine);
    make_room(p, terms, &mine);
    int status = joined(exchange->allgather(exchange->of, REPORTS, &mine, sizeof mine, all), mine.operation, why);
    if (status >= 0)
        status = compare(all, size, why);
    if (status >= 0) {
        take(p, all, terms);
        status = joined(exchange_rows(p, exchange, terms), mine.operation, why);
    }
    if (status >= 0)
        status = check_results(&terms->agreed, why);
    if (status >= 0 && hc_plan_crosses(&terms->agreed))
        status = terms->number = free_number(all, size, why);
    free(all);
    return status < 0 ? status : HC_OK;
}

void hc_plan_refuse(const hc_exchange *exchange, uint8_t operation, int status, const char *why) {
    report *mine = calloc((size_t)exchange->size + 1, sizeof *mine);
    if (!mine)
        return;
    mine->operation = operation;
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", why);
    exchange->allgather(exchange->of, REPORTS, mine, sizeof *mine, mine + 1);
    free(mine);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * user_reduction.c - moves the arrays of all ranks, and combines them in the order of the ranks.
 *
 * The data plane has only built-in reductions. Here an allgather brings the arrays of all ranks to each, which combines
 * those of its result: all ranks have the same bits, and the function need not be commutative. A description goes
 * before each array, and all ranks compare the descriptions. A large blocking allreduce or reduce divides the work: an
 * alltoall brings each rank its share of all arrays, and what it makes of them is gathered.
 */
#include "world/user_reduction.h"

#include "core/fnv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define refuse hc__refuse
#define LARGE (64 << 10)        /* bytes from which a blocking call divides the work */
#define LINE 64                 /* each part begins at a multiple of it, as vector code likes best */
#define TEXT 512                /* bytes of a description; a hash compares what does not fit */
#define TYPE "a user reduction" /* of the bytes that move, so that they match no array of another call */

enum phase { SAY, SAY_ALL, SHARES, RESULT, OVER }; /* SAY: only descriptions; SAY_ALL: with the arrays */

/* The input of the steps SAY and SAY_ALL: this header, the text, the sample and the array, each at a multiple of
 * LINE. */
typedef struct said {
    uint64_t text, sample; /* bytes */
    uint64_t shape;        /* hash */
    uint64_t waits;        /* the array comes later: the work is divided */
} said;

struct hc_folding {
    hc_user_reduction user;
    hc_operand in, out;
    enum phase phase;
    uint8_t operation, form, leaves, found;
    int32_t root, rank, size;
    size_t head;     /* bytes before the array */
    char *memory;    /* the message of this rank, then its array or its share; for a plan, the arrays of all ranks */
    int64_t *splits; /* blocks for each rank, then memory for the parts */
};

/* A part of a rank's array. */
typedef struct part {
    char *data;
    int32_t rank;
} part;

static size_t padded(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

static size_t element_of(const hc_folding *f) {
    return hc_dtype_size(f->in.dtype);
}

static int has_result(const hc_folding *f) {
    return hc_operation_gets(f->operation, f->root, f->rank);
}

static int has(const hc_folding *f, enum hc_operation_trait trait) {
    return hc_operation_has(f->operation, trait);
}

/* Only where all elements of all ranks are combined for one result. */
static int divides(const hc_folding *f) {
    return f->form == HC_FOLDING_WAITS && f->user.block && f->size > 1 && f->in.bytes >= LARGE &&
           has(f, HC_OP_ELEMENTWISE) && !has(f, HC_OP_PREFIX);
}

uint64_t hc_user_reduction_hash(const hc_user_reduction *user) {
    if (!user)
        return 0;
    const uint8_t flags[] = {user->block == 0, user->check != NULL};
    return hc_fnv_more(hc_fnv(user->name, strlen(user->name) + 1), flags, sizeof flags);
}

/* ---- the message of a rank ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t *length, const char *form, ...) {
    va_list values;
    va_start(values, form);
    int written = vsnprintf(text + *length, TEXT - *length, form, values);
    va_end(values);
    *length += written > 0 ? (size_t)written : 0;
    *length = *length < TEXT ? *length : TEXT - 1;
}

/* As "allreduce with hypot of float64[3,4]". Returns the bytes, with the 0 at the end. */
static size_t describe(const hc_folding *f, char text[TEXT]) {
    const hc_operand *in = &f->in;
    size_t length = 0;
    int shown = in->ndim - (in->type != NULL); /* the last dimension is the bytes of an element */
    append(text, &length, "%s with %s of %s[", hc_operation_name(f->operation), f->user.name,
           in->type ? in->type : hc_dtype_name(in->dtype));
    for (int d = 0; d < shown; d++)
        append(text, &length, "%s%" PRId64, d ? "," : "", in->dims[d]);
    append(text, &length, "]");
    if (has(f, HC_OP_ROOTED))
        append(text, &length, " to rank %d", (int)f->root);
    if (!f->user.block)
        append(text, &length, ", of whole arrays");
    return length + 1;
}

static void say(hc_folding *f, const char *text, size_t length, const void *sample, size_t bytes) {
    const said mine = {
        .text = length,
        .sample = bytes,
        .shape = hc_fnv_more(hc_user_reduction_hash(&f->user), f->in.dims, (size_t)f->in.ndim * sizeof *f->in.dims),
        .waits = f->phase == SAY};
    memset(f->memory, 0, f->head);
    memcpy(f->memory, &mine, sizeof mine);
    memcpy(f->memory + LINE, text, length);
    if (bytes)
        memcpy(f->memory + LINE + padded(length), sample, bytes);
}

/* ---- create and free ----------------------------------------------------------------------------------------- */

static void *parts_of(const hc_folding *f) {
    return f->splits + f->size;
}

int hc_folding_new(const hc_arguments *a, const hc_place *place, enum hc_folding_form form, const void *sample,
                   size_t bytes, hc_folding **made) {
    char text[TEXT];
    hc_folding *f = *made = calloc(1, sizeof *f);
    if (!f)
        return HC_NO_MEMORY;
    f->user = *a->user;
    f->in = a->operands[0];
    f->out = a->operands[1];
    f->operation = a->operation;
    f->form = (uint8_t)form;
    f->root = a->root;
    f->rank = place->rank;
    f->size = place->size;
    f->phase = form == HC_FOLDING_PLAN ? (f->user.check ? SAY : OVER) : divides(f) ? SAY : SAY_ALL;
    size_t length = describe(f, text), size = (size_t)f->size;
    f->head = LINE + padded(length) + padded(bytes);
    size_t all = form == HC_FOLDING_PLAN ? size * (size_t)f->in.bytes : f->head + padded((size_t)f->in.bytes);
    f->memory = malloc(all > f->head ? all : f->head);
    f->splits = malloc(size * (sizeof *f->splits + sizeof(part) + sizeof(hc_sample)));
    if (!f->memory || !f->splits) {
        hc_folding_free(f);
        *made = NULL;
        return HC_NO_MEMORY;
    }
    say(f, text, length, sample, bytes);
    return HC_OK;
}

void hc_folding_free(hc_folding *f) {
    if (f) {
        free(f->memory);
        free(f->splits);
    }
    free(f);
}

int hc_folding_leaves(const hc_folding *f) {
    return f->leaves;
}

int hc_folding_is_last(const hc_folding *f) {
    return f->phase == SAY_ALL || f->phase == RESULT;
}

int hc_folding_found(const hc_folding *f) {
    return f->found;
}

/* ---- the operations ------------------------------------------------------------------------------------------ */

/* `rows` rows of `row` bytes. */
static void set_bytes(hc_operand *o, char *data, int64_t rows, int64_t row) {
    hc_operand_clear(o);
    o->data = data;
    o->dtype = HC_UINT8;
    o->type = TYPE;
    o->ndim = row > 1 ? 2 : 1;
    o->dims[0] = rows;
    o->dims[1] = row;
    hc_operand_measure(o);
}

static void set_step(hc_folding_step *step, uint8_t operation, char *data, int64_t rows, int64_t row) {
    step->arguments = hc_arguments_of(operation);
    step->arguments.n = 1;
    step->arguments.operands = step->two;
    set_bytes(&step->two[0], data, rows, row);
    hc_operand_clear(&step->two[1]);
}

static void bring_shares(const hc_folding *f, hc_folding_step *step) {
    int64_t blocks = f->in.count / f->user.block;
    for (int32_t rank = 0; rank < f->size; rank++)
        f->splits[rank] = hc_share(blocks, f->size, rank);
    set_step(step, HC_ALLTOALL, f->in.data, blocks, f->user.block * (int64_t)element_of(f));
    step->arguments.splits = f->splits;
    step->arguments.nsplits = f->size;
}

static void gather_shares(const hc_folding *f, hc_folding_step *step) {
    int64_t blocks = f->in.count / f->user.block, row = f->user.block * (int64_t)element_of(f);
    set_step(step, has(f, HC_OP_TO_ROOT) ? HC_GATHER : HC_ALLGATHER, f->memory, hc_share(blocks, f->size, f->rank),
             row);
    step->arguments.root = f->root;
    if (has_result(f))
        set_bytes(&step->two[1], f->out.data, blocks, row);
}

int hc_folding_next(hc_folding *f, hc_folding_step *step) {
    if (f->phase == SAY) {
        set_step(step, HC_ALLGATHER, f->memory, (int64_t)f->head, 1);
    } else if (f->phase == SAY_ALL) {
        if (f->in.bytes)
            memcpy(f->memory + f->head, f->in.data, (size_t)f->in.bytes);
        set_step(step, HC_ALLGATHER, f->memory, (int64_t)(f->head + padded((size_t)f->in.bytes)), 1);
    } else if (f->phase == SHARES) {
        bring_shares(f, step);
    } else if (f->phase == RESULT) {
        gather_shares(f, step);
    }
    return f->phase != OVER;
}

void hc_folding_plan(hc_folding *f, hc_folding_step *step) {
    set_step(step, HC_ALLGATHER, f->in.data, f->in.bytes, 1);
    set_bytes(&step->two[1], f->memory, f->in.bytes * f->size, 1);
}

/* ---- compare and combine ------------------------------------------------------------------------------------- */

static int compare(const hc_folding *f, const char *data, const int64_t *rows, char *why) {
    const said *first = NULL;
    int32_t first_rank = 0;
    for (int32_t rank = 0; rank < f->size; data += rows[rank], rank++) {
        const said *mine = (const void *)data;
        if (!rows[rank]) /* it has joined */
            continue;
        if (!first) {
            first = mine;
            first_rank = rank;
            continue;
        }
        const char *a = (const char *)first + LINE, *b = data + LINE;
        if (first->shape != mine->shape || strcmp(a, b) != 0)
            return refuse(why, HC_MISMATCH, "rank %d asks for %s, rank %d for %s", (int)first_rank, a, (int)rank, b);
        if (first->waits != mine->waits)
            return refuse(why, HC_MISMATCH,
                          "%s: rank %d waits for it in the call, rank %d does not: large arrays need the same form of "
                          "the call on all ranks",
                          a, (int)(mine->waits ? rank : first_rank), (int)(mine->waits ? first_rank : rank));
    }
    return HC_OK;
}

static int check(const hc_folding *f, const char *data, const int64_t *rows) {
    hc_sample *samples = (void *)((part *)parts_of(f) + f->size);
    int n = 0;
    for (int32_t rank = 0; rank < f->size && f->user.check; data += rows[rank], rank++) {
        const said *mine = (const void *)data;
        if (rows[rank] && mine->sample)
            samples[n++] = (hc_sample){data + LINE + padded(mine->text), (int64_t)mine->sample};
    }
    return n ? f->user.check(&f->user, samples, n) : HC_OK;
}

/* Combines `count` elements of the parts into the last one, from lower to higher ranks. */
static int combine(const hc_folding *f, const part *parts, int n, int64_t count) {
    int status = HC_OK;
    for (int i = 1; i < n && count && status >= 0; i++)
        status = f->user.fold(&f->user, parts[i - 1].data, parts[i].data, count, f->in.dtype);
    return status;
}

/* Writes `count` elements of the result from element `first` on. A function of whole arrays combines all elements. */
static int write_result(hc_folding *f, part *parts, int n, int64_t first, int64_t count) {
    size_t skipped = (size_t)first * element_of(f), bytes = (size_t)count * element_of(f);
    for (int i = 0; i < n && f->user.block; i++)
        parts[i].data += skipped;
    int status = combine(f, parts, n, f->user.block ? count : f->in.count);
    if (status >= 0 && n && bytes)
        memcpy(f->out.data, parts[n - 1].data + (f->user.block ? 0 : skipped), bytes);
    f->found = n || (f->user.neutral && f->user.neutral(&f->user, f->out.data, count, f->in.dtype));
    return status;
}

/* Computes this rank's result from the whole arrays of `n` ranks. */
static int finish(hc_folding *f, part *parts, int n) {
    int64_t first = 0, count = f->in.count;
    if (!has_result(f))
        return HC_OK;
    if (has(f, HC_OP_PREFIX))
        while (n && parts[n - 1].rank >= f->rank + !has(f, HC_OP_EXCLUSIVE))
            n--;
    if (!has(f, HC_OP_ELEMENTWISE)) { /* each rank has a share of the rows */
        int64_t row = hc_operand_row(&f->in);
        first = hc_share_begin(f->in.dims[0], f->size, f->rank) * row;
        count = hc_share(f->in.dims[0], f->size, f->rank) * row;
    }
    return write_result(f, parts, n, first, count);
}

static int take_arrays(hc_folding *f, char *data, const int64_t *rows) {
    part *parts = parts_of(f);
    int n = 0;
    for (int32_t rank = 0; rank < f->size; data += rows[rank], rank++) {
        const said *mine = (const void *)data;
        if (rows[rank])
            parts[n++] = (part){data + LINE + padded(mine->text) + padded(mine->sample), rank};
    }
    return finish(f, parts, n);
}

/* Combines this rank's share of all arrays into its memory. */
static int take_shares(hc_folding *f, char *data) {
    part *parts = parts_of(f);
    int64_t count = f->splits[f->rank] * f->user.block;
    size_t bytes = (size_t)count * element_of(f);
    for (int32_t rank = 0; rank < f->size; rank++)
        parts[rank] = (part){data + (size_t)rank * bytes, rank};
    int status = combine(f, parts, f->size, count);
    if (status >= 0 && bytes)
        memcpy(f->memory, parts[f->size - 1].data, bytes);
    return status;
}

/* Returns the next step after all ranks have sent equal headers. Shares only if no rank has joined, because a joined
 * rank would not combine its share. */
static enum phase after_saying(const hc_folding *f, const int64_t *rows) {
    if (f->phase == SAY_ALL || f->form == HC_FOLDING_PLAN)
        return OVER;
    for (int32_t rank = 0; rank < f->size; rank++)
        if (!rows[rank])
            return SAY_ALL;
    return SHARES;
}

int hc_folding_take(hc_folding *f, char *result, const int64_t *rows, char why[HC_WHY]) {
    enum phase now = f->phase;
    int status = HC_OK;
    why[0] = 0;
    if (now == SAY || now == SAY_ALL) {
        status = compare(f, result, rows, why);
        if (status >= 0) {
            status = check(f, result, rows);
            f->leaves = status < 0 && now == SAY && f->form != HC_FOLDING_PLAN; /* the others go on */
        }
        if (status >= 0)
            f->phase = after_saying(f, rows);
        if (status >= 0 && now == SAY_ALL)
            status = take_arrays(f, result, rows);
    } else if (now == SHARES) {
        status = take_shares(f, result);
        f->leaves = status < 0;
        f->phase = RESULT;
    } else {
        f->found = (uint8_t)has_result(f);
        f->phase = OVER;
    }
    if (status < 0)
        f->phase = OVER;
    return status;
}

int hc_folding_take_start(hc_folding *f, char why[HC_WHY]) {
    part *parts = parts_of(f);
    why[0] = 0;
    for (int32_t rank = 0; rank < f->size; rank++)
        parts[rank] = (part){f->memory + (size_t)rank * (size_t)f->in.bytes, rank};
    return finish(f, parts, f->size);
}

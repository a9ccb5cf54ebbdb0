/* SPDX-License-Identifier: Apache-2.0
 *
 * arguments.c - checks the arguments of an operation on one rank.
 */
#include "world/arguments.h"

#include "world/user_reduction.h"
#include "world/why.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define has hc_arguments_has
#define refuse hc__refuse

/* ---- arrays ------------------------------------------------------------------------------------------------ */

void hc_operand_clear(hc_operand *o) {
    o->data = NULL;
    o->count = o->bytes = 0;
    o->dtype = o->ndim = 0;
    o->memory = HC_MEMORY_HOST;
    o->type = NULL;
}

void hc_operand_measure(hc_operand *o) {
    o->count = hc_elements(o->dims, (uint32_t)o->ndim);
    o->bytes = o->count < 0 ? 0 : o->count * (int64_t)hc_dtype_size(o->dtype);
}

int64_t hc_operand_row(const hc_operand *o) {
    return o->ndim ? hc_elements(o->dims + 1, (uint32_t)o->ndim - 1) : 1;
}

int64_t hc_arguments_result_bytes(const hc_arguments *a, const hc_place *place, uint32_t at) {
    const hc_operand *in = &a->operands[2 * at], *out = in + 1;
    if (!hc_arguments_gets(a, place))
        return 0;
    if (has(a, HC_OP_RESULT_ALLOCATED))
        return out->data ? out->bytes : 0;
    if (has(a, HC_OP_ELEMENTWISE) || !has(a, HC_OP_REDUCES) || !in->ndim)
        return in->bytes;
    return hc_share(in->dims[0], place->size, place->rank) * hc_operand_row(in) * (int64_t)hc_dtype_size(in->dtype);
}

size_t hc_arguments_extents(const hc_arguments *a, const hc_place *place, hc_extent *extents) {
    size_t many = 0;
    int gives = hc_arguments_gives(a, place);
    for (uint32_t i = 0; i < a->n; i++) {
        const hc_operand *in = &a->operands[2 * i];
        const char *out = in[1].data;
        int64_t written = out && !a->is_fresh ? hc_arguments_result_bytes(a, place, i) : 0;
        int64_t shared = in->data == out ? written : 0; /* of an input that its result replaces */
        if (gives && in->bytes > shared)
            extents[many++] = (hc_extent){in->data + shared, in->data + in->bytes, 0, (int)i};
        if (written)
            extents[many++] = (hc_extent){out, out + written, 1, (int)i};
    }
    return many;
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

static const hc_words *words_of(const hc_arguments *a) {
    return &hc_words_table[a->words];
}

static int check_operation(const hc_arguments *a, const hc_place *place, char *why) {
    if (a->operation >= HC_OPERATION_COUNT)
        return refuse(why, HC_INVALID, "there is no operation %d", a->operation);
    if (has(a, HC_OP_ROOTED) && (a->root < 0 || a->root >= place->size))
        return refuse(why, HC_INVALID, "root is %d: the World has ranks 0 to %d", (int)a->root, (int)place->size - 1);
    if (a->is_group && !has(a, HC_OP_FUSES))
        return refuse(why, HC_INVALID, "it has no groups");
    if (a->is_group && !a->n)
        return refuse(why, HC_INVALID, "a group has at least one %s", words_of(a)->array);
    uint32_t wanted = has(a, HC_OP_NO_TENSORS) ? 0 : 1;
    if (!a->is_group && a->n != wanted)
        return refuse(why, HC_INVALID, "it is for %" PRIu32 " %ss, not %" PRIu32, wanted, words_of(a)->array, a->n);
    return HC_OK;
}

/* Checks a reduction of the program. */
static int check_user(const hc_arguments *a, const hc_operand *in, char *why) {
    const hc_user_reduction *user = a->user;
    const hc_words *words = words_of(a);
    int64_t row = has(a, HC_OP_ELEMENTWISE) ? in->count : hc_operand_row(in);
    if (!user)
        return refuse(why, HC_INVALID, "op is no reduction");
    if (a->is_group)
        return refuse(why, HC_UNSUPPORTED, "%s takes one %s, not a group", user->name, words->array);
    if (a->prescale != 1.0 || a->postscale != 1.0)
        return refuse(why, HC_UNSUPPORTED, "%s has no %s and %s", user->name, words->prescale, words->postscale);
    if (a->wire != HC_WIRE_SAME)
        return refuse(why, HC_UNSUPPORTED, "%s has no compression", user->name);
    if (in->memory != HC_MEMORY_HOST)
        return refuse(why, HC_UNSUPPORTED, "%s takes %ss in host memory", user->name, words->array);
    if (user->block && row % user->block)
        return refuse(why, HC_INVALID, "%s takes multiples of %" PRId64 " elements, not %" PRId64, user->name,
                      user->block, row);
    return HC_OK;
}

static int check_reduction(const hc_arguments *a, const hc_operand *in, char *why) {
    int dtype = in->dtype;
    const hc_words *words = words_of(a);
    if (a->reduction == HC_REDUCTION_COUNT)
        return check_user(a, in, why);
    if (a->reduction > HC_REDUCTION_COUNT || !hc_reduction_defined(a->reduction, dtype))
        return refuse(why, HC_UNSUPPORTED, "%s of %s is not defined", words->reduction(a->reduction),
                      hc_dtype_name(dtype));
    if (has(a, HC_OP_PREFIX) && a->reduction == HC_AVERAGE)
        return refuse(why, HC_UNSUPPORTED, "%s is not defined: use %s and divide", words->reduction(HC_AVERAGE),
                      words->reduction(HC_SUM));
    if (a->prescale == 1.0 && a->postscale == 1.0)
        return HC_OK;
    if (a->reduction != HC_SUM && a->reduction != HC_AVERAGE)
        return refuse(why, HC_UNSUPPORTED, "%s and %s go with %s and %s, not %s", words->prescale, words->postscale,
                      words->reduction(HC_SUM), words->reduction(HC_AVERAGE), words->reduction(a->reduction));
    if (dtype < HC_FLOAT16)
        return refuse(why, HC_UNSUPPORTED, "%s and %s are not defined for %s", words->prescale, words->postscale,
                      hc_dtype_name(dtype));
    return HC_OK;
}

static int check_wire(const hc_arguments *a, int dtype, char *why) {
    if (a->wire == HC_WIRE_SAME || a->wire == dtype)
        return HC_OK;
    if (!has(a, HC_OP_NARROWS))
        return refuse(why, HC_UNSUPPORTED, "it has no compression");
    if (a->wire != HC_FLOAT16 && a->wire != HC_BFLOAT16)
        return refuse(why, HC_INVALID, "compression is to %s: it is to float16, to bfloat16, or there is none",
                      hc_dtype_name(a->wire));
    if (dtype != HC_FLOAT32 && dtype != HC_FLOAT64)
        return refuse(why, HC_UNSUPPORTED, "compression to %s is for float32 and float64, the %s is %s",
                      hc_dtype_name(a->wire), words_of(a)->array, hc_dtype_name(dtype));
    return HC_OK;
}

/* Refuses an overlap of input and result. A result of the input's size may be the input. */
static int check_overlap(const hc_arguments *a, const hc_place *place, uint32_t at, char *why) {
    const hc_operand *in = &a->operands[2 * at];
    const char *out = in[1].data;
    int replaces = in->data == out && !has(a, HC_OP_RESULT_ALLOCATED);
    if (replaces || !in->bytes || out >= in->data + in->bytes)
        return HC_OK;
    int64_t bytes = hc_arguments_result_bytes(a, place, at);
    if (!bytes || in->data >= out + bytes)
        return HC_OK;
    if (in->memory != HC_MEMORY_HOST && has(a, HC_OP_RESULT_ALLOCATED))
        return HC_OK; /* the data plane of device memory copies such inputs */
    return refuse(why, HC_INVALID, "%s overlaps the input without being the input", words_of(a)->out);
}

static const char *memory_of(const hc_operand *o) {
    return o->memory == HC_MEMORY_HOST ? "host" : "device";
}

int hc_arguments_one_memory(const hc_arguments *a, const hc_place *place, char why[HC_WHY]) {
    int gets = hc_arguments_gets(a, place);
    for (uint32_t i = 0; i < a->n; i++) {
        const hc_operand *in = &a->operands[2 * i], *out = in + 1;
        if (gets && out->data && out->memory != in->memory)
            return refuse(why, HC_INVALID, "%s lies in %s memory, the input in %s memory", words_of(a)->out,
                          memory_of(out), memory_of(in));
        if (in->memory != a->operands->memory)
            return refuse(why, HC_INVALID, "a group lies in one memory: %s 0 in %s memory, %s %" PRIu32 " in %s memory",
                          words_of(a)->array, memory_of(a->operands), words_of(a)->array, i, memory_of(in));
    }
    return HC_OK;
}

static int check_array(const hc_arguments *a, const hc_place *place, uint32_t at, char *why) {
    const hc_operand *in = &a->operands[2 * at], *out = in + 1;
    int gives = hc_arguments_gives(a, place), gets = hc_arguments_gets(a, place);
    if ((unsigned)in->dtype >= HC_DTYPE_COUNT || in->ndim > HC_MAX_DIMS)
        return refuse(why, HC_UNSUPPORTED, "there are no %ss of dtype %d with %d dimensions", words_of(a)->array,
                      in->dtype, in->ndim);
    if (in->count < 0 || out->count < 0)
        return refuse(why, HC_INVALID, "%s has a negative or too large number of elements",
                      in->count < 0 ? "in" : "out");
    if (hc_arguments_by_rows(a) && !in->ndim)
        return refuse(why, HC_INVALID, "it needs at least one dimension, the %s has none", words_of(a)->array);
    int status = has(a, HC_OP_REDUCES) ? check_reduction(a, in, why) : HC_OK;
    if (status >= 0)
        status = check_wire(a, in->dtype, why);
    if (status < 0)
        return status;
    if (gives && in->count && !in->data)
        return refuse(why, HC_INVALID, "in is NULL");
    if (gets && !out->data && (has(a, HC_OP_RESULT_ALLOCATED) ? out->count : hc_arguments_result_bytes(a, place, at)))
        return refuse(why, HC_INVALID, "out is NULL");
    if (!gives || a->is_group || a->is_fresh)
        return HC_OK;
    return check_overlap(a, place, at, why);
}

/* Refuses an out of a group that overlaps other arrays of the group. */
static int check_group(const hc_arguments *a, const hc_place *place, char *why) {
    const hc_words *words = words_of(a);
    hc_extent *extents = malloc(2 * (size_t)a->n * sizeof *extents);
    if (!extents)
        return refuse(why, HC_NO_MEMORY, "no memory for a group of %" PRIu32 " %ss; nothing was sent", a->n,
                      words->array);
    int bad = hc_extents_conflict(extents, hc_arguments_extents(a, place, extents));
    free(extents);
    if (bad < 0)
        return HC_OK;
    return refuse(why, HC_INVALID,
                  "%s %d of the group shares memory with another one's %s: each %s needs memory of its own, or that of "
                  "its own input",
                  words->array, bad, words->out, words->out);
}

static int check_splits(const hc_arguments *a, const hc_place *place, char *why) {
    int64_t rows = a->operands[0].dims[0], sum = 0;
    if (!a->splits && !has(a, HC_OP_ROOTED) && rows % place->size)
        return refuse(why, HC_INVALID, "without splits %" PRId64 " rows are not divisible by %d ranks", rows,
                      (int)place->size);
    if (!a->splits)
        return HC_OK;
    if (a->nsplits != place->size)
        return refuse(why, HC_INVALID, "splits has %" PRId64 " counts, not %d (one per rank)", a->nsplits,
                      (int)place->size);
    for (int64_t i = 0; i < a->nsplits; i++) {
        if (a->splits[i] < 0)
            return refuse(why, HC_INVALID, "splits[%" PRId64 "] is %" PRId64, i, a->splits[i]);
        if (a->splits[i] > INT64_MAX - sum)
            return refuse(why, HC_INVALID, "the sum of splits is more than %" PRId64, INT64_MAX);
        sum += a->splits[i];
    }
    if (sum != rows)
        return refuse(why, HC_INVALID, "the sum of splits is %" PRId64 ", the input has %" PRId64 " rows", sum, rows);
    return HC_OK;
}

/* Sets `wire`, which must be the same for all arrays of a group. */
static int find_wire(hc_arguments *a, char *why) {
    int wire = HC_WIRE_SAME;
    for (uint32_t i = 0; i < a->n; i++) {
        int its = a->operands[2 * i].dtype == a->wire ? HC_WIRE_SAME : a->wire;
        if (i && its != wire)
            return refuse(why, HC_UNSUPPORTED, "compression of a group whose %ss are only partly compressible",
                          words_of(a)->array);
        wire = its;
    }
    a->wire = (uint8_t)wire;
    return HC_OK;
}

int hc_arguments_check(hc_arguments *a, const hc_place *place, char why[HC_WHY]) {
    int status = check_operation(a, place, why);
    for (uint32_t i = 0; i < a->n && status >= 0; i++)
        status = check_array(a, place, i, why);
    if (status >= 0 && a->is_group && !a->is_fresh)
        status = check_group(a, place, why);
    if (status >= 0 && has(a, HC_OP_COUNTS) && hc_arguments_gives(a, place))
        status = check_splits(a, place, why);
    return status < 0 || a->wire == HC_WIRE_SAME ? status : find_wire(a, why);
}

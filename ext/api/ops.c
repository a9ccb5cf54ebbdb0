/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.c - the table of user-defined reductions, with MINLOC and MAXLOC, which are functions, too.
 */
#include "api/calls.h"
#include "api/codes.h"
#include "api/ops.h"
#include "transport/arithmetic.h"

#include <inttypes.h>
#include <stdio.h>

#define OPS (HPCCOLL_OP_LAST - HPCCOLL_MINLOC + 1)

/* ---- MINLOC and MAXLOC: pairs of one type, value and index ------------------------------------------------------ */

/* `in` and `inout` are pairs. The lower index of equal values wins. If there is a NaN, it is the result, as with MIN
 * and MAX. */
#define LOC(type, better)                                                             \
    {                                                                                 \
        const type *a = in;                                                           \
        type *b = inout;                                                              \
        for (int64_t i = 0; i < count; i += 2) {                                      \
            int nan_a = a[i] != a[i], nan_b = b[i] != b[i];                           \
            int ties = a[i] == b[i] || (nan_a && nan_b);                              \
            if (ties ? a[i + 1] < b[i + 1] : nan_a || (!nan_b && a[i] better b[i])) { \
                b[i] = a[i];                                                          \
                b[i + 1] = a[i + 1];                                                  \
            }                                                                         \
        }                                                                             \
        break;                                                                        \
    }

#define LOC_TYPES(X, better) \
    case HPCCOLL_UINT8:      \
        X(uint8_t, better)   \
    case HPCCOLL_INT8:       \
        X(int8_t, better)    \
    case HPCCOLL_UINT16:     \
        X(uint16_t, better)  \
    case HPCCOLL_INT16:      \
        X(int16_t, better)   \
    case HPCCOLL_UINT32:     \
        X(uint32_t, better)  \
    case HPCCOLL_INT32:      \
        X(int32_t, better)   \
    case HPCCOLL_UINT64:     \
        X(uint64_t, better)  \
    case HPCCOLL_INT64:      \
        X(int64_t, better)   \
    case HPCCOLL_FLOAT32:    \
        X(float, better)     \
    case HPCCOLL_FLOAT64:    \
        X(double, better)    \
    default:                 \
        break

static void min_loc(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    (void)context;
    switch (dtype) { LOC_TYPES(LOC, <); }
}

static void max_loc(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    (void)context;
    switch (dtype) { LOC_TYPES(LOC, >); }
}

/* The neutral pair: every other pair precedes it. */
static int last_for_min(const hc_user_reduction *user, void *to, int64_t count, int dtype) {
    (void)user;
    hc_host_neutral(to, dtype, HC_MIN, count);
    return 1;
}

static int last_for_max(const hc_user_reduction *user, void *to, int64_t count, int dtype) {
    size_t element = hc_dtype_size(dtype);
    last_for_min(user, to, count, dtype);
    for (int64_t i = 0; i < count; i += 2)
        hc_host_neutral((char *)to + (size_t)i * element, dtype, HC_MAX, 1);
    return 1;
}

static int loc_defined(hpccoll_dtype dtype) {
    return dtype != HPCCOLL_BOOL && dtype != HPCCOLL_FLOAT16 && dtype != HPCCOLL_BFLOAT16 && dtype < HPCCOLL_COMPLEX64;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static _Thread_local char failure[HC__ERROR_BYTES / 2]; /* of the function that this thread has called; "": none */

void hpccoll_op_fail(const char *why) {
    snprintf(failure, sizeof failure, "%s", why && *why ? why : "it has not said why");
}

static int call_function(const hc_user_reduction *user, const void *in, void *inout, int64_t count, int dtype) {
    failure[0] = 0;
    ((hpccoll_function *)user->function)(in, inout, count, (hpccoll_dtype)dtype, user->of);
    return failure[0] ? hc__error(HC_UNSUPPORTED, "the function of %s has failed: %s", user->name, failure) : HC_OK;
}

#define LOC_OP(combine, last, text) \
    {.fold = call_function, .function = (hc_user_function)(combine), .neutral = (last), .block = 2, .name = text}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hc_user_reduction table[OPS] = {LOC_OP(min_loc, last_for_min, "MINLOC"),
                                       LOC_OP(max_loc, last_for_max, "MAXLOC")}; /* no `fold`: a free entry */

int hc__op_find(unsigned number, hc_user_reduction *found) {
    *found = (hc_user_reduction){0};
    if (number < HPCCOLL_MINLOC || number > HPCCOLL_OP_LAST)
        return 0;
    pthread_mutex_lock(&lock);
    *found = table[number - HPCCOLL_MINLOC];
    pthread_mutex_unlock(&lock);
    return found->fold != NULL;
}

int hc__op_check(const hc__call *call, hpccoll_dtype dtype) {
    hc_user_reduction op;
    const char *operation = hc_operation_name(call->operation);
    if (!hc__op_find(call->reduction, &op))
        return hc__error(HC_INVALID, "%s: op is no hpccoll_reduction, or was freed; nothing was sent", operation);
    if (call->reduction <= HPCCOLL_MAXLOC && !loc_defined(dtype))
        return hc__error(HC_UNSUPPORTED, "%s: %s of %s is not defined", operation, op.name, hc_dtype_name((int)dtype));
    return HC_OK;
}

int hpccoll_op_create(hpccoll_function *function, void *context, int64_t block, const char *name,
                      hpccoll_reduction *op) {
    if (!op || !function)
        return hc__error(HC_INVALID, "%s is NULL", op ? "the function" : "the place for the op");
    *op = HPCCOLL_OP_NULL;
    if (block < 0 || block > HC_MAX_ELEMENTS)
        return hc__error(HC_INVALID,
                         "block is %" PRId64 ": it is a number of elements, at most %" PRId64 ", or 0 for whole arrays",
                         block, HC_MAX_ELEMENTS);
    hc_user_reduction made = {
        .fold = call_function, .function = (hc_user_function)function, .of = context, .block = block};
    snprintf(made.name, sizeof made.name, "%s", name && *name ? name : "the program's op");
    int status = hc__error(HC_NO_MEMORY, "%d ops are in use, which is all that there can be: free some", OPS - 2);
    pthread_mutex_lock(&lock);
    for (int i = HPCCOLL_MAXLOC - HPCCOLL_MINLOC + 1; i < OPS && status < 0; i++) {
        if (table[i].fold)
            continue;
        table[i] = made;
        *op = (hpccoll_reduction)(HPCCOLL_MINLOC + i);
        status = HC_OK;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int hpccoll_op_free(hpccoll_reduction *op) {
    hc_user_reduction found;
    if (!op)
        return hc__error(HC_INVALID, "the address of the op is NULL");
    if (*op == HPCCOLL_OP_NULL)
        return HC_OK;
    if ((unsigned)*op <= HPCCOLL_MAXLOC || !hc__op_find((unsigned)*op, &found))
        return hc__error(HC_INVALID, "op is none that hpccoll_op_create() has made, or was freed");
    pthread_mutex_lock(&lock);
    table[*op - HPCCOLL_MINLOC] = (hc_user_reduction){0};
    pthread_mutex_unlock(&lock);
    *op = HPCCOLL_OP_NULL;
    return HC_OK;
}

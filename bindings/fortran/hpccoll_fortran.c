/* SPDX-License-Identifier: Apache-2.0
 *
 * hpccoll_fortran.c - what the procedures of the module hpccoll (hpccoll.f90) call. It reads the descriptors of arrays,
 * whose layout is each Fortran compiler's own: compile it with the C compiler that goes with that one.
 */
#include <ISO_Fortran_binding.h>
#include <hpccoll.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 4097

typedef const CFI_cdesc_t *array;

static const struct {
    CFI_type_t type;
    hpccoll_dtype dtype;
} types[] = {{CFI_type_int32_t, HPCCOLL_INT32},
             {CFI_type_int64_t, HPCCOLL_INT64},
             {CFI_type_float, HPCCOLL_FLOAT32},
             {CFI_type_double, HPCCOLL_FLOAT64},
             {CFI_type_float_Complex, HPCCOLL_COMPLEX64},
             {CFI_type_double_Complex, HPCCOLL_COMPLEX128},
             {CFI_type_int8_t, HPCCOLL_INT8},
             {CFI_type_int16_t, HPCCOLL_INT16},
             {CFI_type_Bool, HPCCOLL_BOOL}};

/* ---- errors: a status, or the end of the program where the caller has no place for one ------------------------ */

static _Thread_local char own_error[512]; /* of what is wrong before the library is called; "": ask the library */

static int refuse(const char *procedure, const char *argument, const char *why) {
    snprintf(own_error, sizeof own_error, "%s: %s %s", procedure, argument, why);
    return HPCCOLL_INVALID;
}

static void report(int status, int *ierror) {
    if (ierror)
        *ierror = status;
    if (status >= 0 || ierror)
        return;
    fprintf(stderr, "hpccoll: %s\n", own_error[0] ? own_error : hpccoll_last_error());
    exit(EXIT_FAILURE);
}

static void copy_text(const CFI_cdesc_t *text, const char *from) {
    size_t length = strlen(from), room = text->elem_len;
    memset(text->base_addr, ' ', room);
    memcpy(text->base_addr, from, length < room ? length : room);
}

void hpccoll_f_last_error(const CFI_cdesc_t *text) {
    copy_text(text, own_error[0] ? own_error : hpccoll_last_error());
}

void hpccoll_f_strerror(const int *status, const CFI_cdesc_t *text) {
    copy_text(text, hpccoll_strerror(*status));
}

/* ---- arguments ---------------------------------------------------------------------------------------------- */

/* A text of Fortran without its blanks at the end; NULL where it is absent. */
static const char *text_of(const CFI_cdesc_t *text, char bytes[NAME_BYTES]) {
    if (!text || !text->base_addr) /* or not allocated, which is the same by Fortran 2018, 15.5.2.12 */
        return NULL;
    size_t length = text->elem_len < NAME_BYTES ? text->elem_len : NAME_BYTES - 1;
    while (length && ((const char *)text->base_addr)[length - 1] == ' ')
        length--;
    memcpy(bytes, text->base_addr, length);
    bytes[length] = 0;
    return bytes;
}

/* Address, elements, dtype, and the elements of all dimensions but the last: what is cut and counted whole. */
typedef struct place {
    void *data;
    int64_t count, row;
    hpccoll_dtype dtype;
} place;

static int find_type(const char *procedure, const char *argument, array x, hpccoll_dtype *dtype) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (x->type == types[i].type) {
            *dtype = types[i].dtype;
            return HPCCOLL_OK;
        }
    }
    return refuse(procedure, argument,
                  "is of no type that moves: integer of 8 to 64 bits, real(real32), real(real64), "
                  "complex of these, logical(c_bool)");
}

/* As the standard defines it (Fortran 2018, 8.5.7): steps count only in dimensions with more than one element.
 * CFI_is_contiguous() of gfortran 12 looks at all of them. */
static int is_contiguous(array x) {
    CFI_index_t dense = (CFI_index_t)x->elem_len;
    for (int d = 0; d < x->rank; d++) {
        if (x->dim[d].extent > 1 && x->dim[d].sm != dense)
            return 0;
        dense *= x->dim[d].extent;
    }
    return 1;
}

static int read_array(const char *procedure, const char *argument, array x, place *p) {
    own_error[0] = 0;
    *p = (place){.count = 1, .row = 1, .dtype = HPCCOLL_FLOAT64};
    if (!x)
        return HPCCOLL_OK;
    int status = find_type(procedure, argument, x, &p->dtype);
    if (status < 0)
        return status;
    for (int d = 0; d < x->rank; d++) {
        if (x->dim[d].extent < 0)
            return refuse(procedure, argument, "is of assumed size (*): give a section with its bounds, as x(1:n)");
        p->count *= x->dim[d].extent;
        if (d + 1 < x->rank)
            p->row *= x->dim[d].extent ? x->dim[d].extent : 1;
    }
    if (p->count && !is_contiguous(x))
        return refuse(procedure, argument,
                      "is not contiguous, as a section with a stride or a row of a matrix: copy it "
                      "to a contiguous array first");
    p->data = x->base_addr;
    return p->data || !p->count ? HPCCOLL_OK : refuse(procedure, argument, "is not allocated");
}

typedef struct options {
    hpccoll_args args;
    char name[NAME_BYTES];
} options;

static const hpccoll_args *read_options(options *o, array name, const double *prescale, const double *postscale,
                                        const int *compression, int64_t row) {
    o->args = (hpccoll_args)HPCCOLL_ARGS;
    o->args.name = text_of(name, o->name);
    o->args.prescale = prescale ? *prescale : 1.0;
    o->args.postscale = postscale ? *postscale : 1.0;
    o->args.compression = compression ? (hpccoll_dtype)*compression : HPCCOLL_NO_COMPRESSION;
    o->args.row = row;
    return &o->args;
}

/* ---- Worlds --------------------------------------------------------------------------------------------------- */

/* comm: an integer, or a type(MPI_Comm), which begins with that integer. */
void hpccoll_f_world(const int *comm, hpccoll_world **world, array given, int *ierror) {
    char text[NAME_BYTES];
    own_error[0] = 0;
    report(hpccoll_world_from_fortran(*comm, text_of(given, text), world), ierror);
}

void hpccoll_f_alone(hpccoll_world **world, array given, int *ierror) {
    char text[NAME_BYTES];
    own_error[0] = 0;
    report(hpccoll_world_alone(text_of(given, text), world), ierror);
}

void hpccoll_f_free(hpccoll_world **world, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_world_free(world), ierror);
}

int hpccoll_f_rank(hpccoll_world *const *world) {
    return hpccoll_rank(*world);
}

int hpccoll_f_size(hpccoll_world *const *world) {
    return hpccoll_size(*world);
}

int hpccoll_f_local_rank(hpccoll_world *const *world) {
    return hpccoll_local_rank(*world);
}

int hpccoll_f_local_size(hpccoll_world *const *world) {
    return hpccoll_local_size(*world);
}

void hpccoll_f_split(hpccoll_world *const *world, const int *color, const int *key, hpccoll_world **part, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_split(*world, *color, *key, part), ierror);
}

void hpccoll_f_subset(hpccoll_world *const *world, array ranks, hpccoll_world **subset, int *ierror) {
    place p;
    int status = read_array("hpccoll_subset", "ranks", ranks, &p);
    report(status < 0 ? status : hpccoll_subset(*world, p.data, (int)p.count, subset), ierror);
}

/* ---- reductions of the program's own ---------------------------------------------------------------------------- */

void hpccoll_f_op_create(hpccoll_function *function, int *op, const int *block, array given, int *ierror) {
    char name[NAME_BYTES];
    hpccoll_reduction made;
    own_error[0] = 0;
    int status = hpccoll_op_create(function, NULL, block ? *block : 1, text_of(given, name), &made);
    *op = (int)made;
    report(status, ierror);
}

void hpccoll_f_op_free(int *op, int *ierror) {
    hpccoll_reduction freed = (hpccoll_reduction)*op;
    own_error[0] = 0;
    int status = hpccoll_op_free(&freed);
    *op = (int)freed;
    report(status, ierror);
}

/* ---- collectives: each with `request` NULL where the caller waits ------------------------------------------------ */

#define REDUCTION(name, root)                                                                                          \
    void hpccoll_f_##name(array x, const int *op, ROOT_##root hpccoll_world *const *world, array out, array call_name, \
                          const double *prescale, const double *postscale, const int *compression,                     \
                          hpccoll_request **request, int *ierror) {                                                    \
        place from, to;                                                                                                \
        options o;                                                                                                     \
        int status = read_array("hpccoll_" #name, "x", x, &from);                                                      \
        status = status < 0 ? status : read_array("hpccoll_" #name, "out", out ? out : x, &to);                        \
        if (status >= 0 && (to.count != from.count || to.dtype != from.dtype))                                         \
            status = refuse("hpccoll_" #name, "out", "has not the type and size of x");                                \
        if (status >= 0) {                                                                                             \
            const hpccoll_args *args = read_options(&o, call_name, prescale, postscale, compression, 1);               \
            status = request ? hpccoll_##name##_async(from.data, to.data, from.count, from.dtype,                      \
                                                      (hpccoll_reduction) * op, GIVE_##root args, *world, request)     \
                             : hpccoll_##name(from.data, to.data, from.count, from.dtype, (hpccoll_reduction) * op,    \
                                              GIVE_##root args, *world);                                               \
        }                                                                                                              \
        report(status, ierror);                                                                                        \
    }
#define ROOT_rooted const int *root,
#define GIVE_rooted *root,
#define ROOT_all
#define GIVE_all
REDUCTION(allreduce, all)
REDUCTION(scan, all)
REDUCTION(exscan, all)
REDUCTION(reduce, rooted)

void hpccoll_f_broadcast(array x, const int *root, hpccoll_world *const *world, array name, hpccoll_request **request,
                         int *ierror) {
    place p;
    options o;
    int status = read_array("hpccoll_broadcast", "x", x, &p);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, 1);
        status = request ? hpccoll_broadcast_async(p.data, p.count, p.dtype, *root, args, *world, request)
                         : hpccoll_broadcast(p.data, p.count, p.dtype, *root, args, *world);
    }
    report(status, ierror);
}

/* Two arrays of one type, whose rows have one size. */
static int read_both(const char *procedure, array x, array out, place *from, place *to) {
    int status = read_array(procedure, "x", x, from);
    if (status < 0 || (status = read_array(procedure, "out", out, to)) < 0)
        return status;
    if (from->dtype != to->dtype)
        return refuse(procedure, "out", "has not the type of x");
    if (x->rank && out->rank && from->row != to->row)
        return refuse(procedure, "out", "has not the shape of x in all dimensions but the last");
    return HPCCOLL_OK;
}

static int read_shares(const char *procedure, array x, array out, hpccoll_world *world, place *from, place *to) {
    int status = read_both(procedure, x, out, from, to);
    if (status < 0 || hpccoll_size(world) < 1 ||
        to->count == hpccoll_share(from->count / from->row, hpccoll_size(world), hpccoll_rank(world)) * from->row)
        return status;
    return refuse(procedure, "out", "has not the size of this rank's share (hpccoll_share)");
}

void hpccoll_f_reducescatter(array x, array out, const int *op, hpccoll_world *const *world, array name,
                             const double *prescale, const double *postscale, hpccoll_request **request, int *ierror) {
    place from, to;
    options o;
    int status = read_shares("hpccoll_reducescatter", x, out, *world, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, NULL, from.row);
        hpccoll_reduction how = (hpccoll_reduction)*op;
        status = request ? hpccoll_reducescatter_async(from.data, to.data, from.count, from.dtype, how, args, *world,
                                                       request)
                         : hpccoll_reducescatter(from.data, to.data, from.count, from.dtype, how, args, *world);
    }
    report(status, ierror);
}

void hpccoll_f_allgather(array x, array out, hpccoll_world *const *world, int64_t *counts, array name,
                         hpccoll_request **request, int *ierror) {
    place from, to;
    options o;
    int status = read_both("hpccoll_allgather", x, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, from.row);
        status = request
                     ? hpccoll_allgather_async(from.data, from.count, from.dtype, to.data, to.count, counts, args,
                                               *world, request)
                     : hpccoll_allgather(from.data, from.count, from.dtype, to.data, to.count, counts, args, *world);
    }
    report(status, ierror);
}

/* `out` of other ranks than the root is not read, and need not be allocated. */
static int read_gathered(const char *procedure, array x, array out, int is_root, place *from, place *to) {
    int status = read_both(procedure, x, is_root ? out : x, from, to);
    if (!is_root)
        *to = (place){.row = 1};
    return status;
}

void hpccoll_f_gather(array x, array out, const int *root, hpccoll_world *const *world, int64_t *counts, array name,
                      hpccoll_request **request, int *ierror) {
    place from, to;
    options o;
    int status = read_gathered("hpccoll_gather", x, out, hpccoll_rank(*world) == *root, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, from.row);
        status = request ? hpccoll_gather_async(from.data, from.count, from.dtype, to.data, to.count, counts, *root,
                                                args, *world, request)
                         : hpccoll_gather(from.data, from.count, from.dtype, to.data, to.count, counts, *root, args,
                                          *world);
    }
    report(status, ierror);
}

void hpccoll_f_scatter(array x, array out, const int *root, hpccoll_world *const *world, const int64_t *splits,
                       array name, hpccoll_request **request, int *ierror) {
    place from, to;
    options o;
    int is_root = hpccoll_rank(*world) == *root;
    int status = read_both("hpccoll_scatter", is_root ? x : out, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, to.row);
        status = request
                     ? hpccoll_scatter_async(from.data, from.count, splits, to.dtype, to.data, to.count, *root, args,
                                             *world, request)
                     : hpccoll_scatter(from.data, from.count, splits, to.dtype, to.data, to.count, *root, args, *world);
    }
    report(status, ierror);
}

void hpccoll_f_alltoall(array x, array out, hpccoll_world *const *world, const int64_t *splits, int64_t *recv_counts,
                        array name, hpccoll_request **request, int *ierror) {
    place from, to;
    options o;
    int status = read_both("hpccoll_alltoall", x, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, from.row);
        status = request ? hpccoll_alltoall_async(from.data, from.count, splits, from.dtype, to.data, to.count,
                                                  recv_counts, args, *world, request)
                         : hpccoll_alltoall(from.data, from.count, splits, from.dtype, to.data, to.count, recv_counts,
                                            args, *world);
    }
    report(status, ierror);
}

void hpccoll_f_barrier(hpccoll_world *const *world, array name, hpccoll_request **request, int *ierror) {
    options o;
    own_error[0] = 0;
    const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, 1);
    report(request ? hpccoll_barrier_async(args, *world, request) : hpccoll_barrier(args, *world), ierror);
}

/* ---- messages and requests --------------------------------------------------------------------------------------- */

void hpccoll_f_send(array x, const int *dest, const int *tag, hpccoll_world *const *world, hpccoll_request **request,
                    int *ierror) {
    place p;
    int status = read_array("hpccoll_send", "x", x, &p);
    if (status >= 0)
        status = request ? hpccoll_send_async(p.data, p.count, p.dtype, *dest, *tag, *world, request)
                         : hpccoll_send(p.data, p.count, p.dtype, *dest, *tag, *world);
    report(status, ierror);
}

void hpccoll_f_recv(array x, const int *source, const int *tag, hpccoll_world *const *world, int *from,
                    int64_t *received, hpccoll_request **request, int *ierror) {
    place p;
    int status = read_array("hpccoll_recv", "x", x, &p);
    if (status >= 0)
        status = request ? hpccoll_recv_async(p.data, p.count, p.dtype, *source, *tag, from, received, *world, request)
                         : hpccoll_recv(p.data, p.count, p.dtype, *source, *tag, from, received, *world);
    report(status, ierror);
}

void hpccoll_f_wait(hpccoll_request **request, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_wait(request), ierror);
}

void hpccoll_f_waitall(const int *n, hpccoll_request **requests, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_waitall(*n, requests), ierror);
}

void hpccoll_f_test(hpccoll_request **request, int *done, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_test(request, done), ierror);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

#define REDUCTION_PLAN(name, root)                                                                                     \
    void hpccoll_f_##name##_init(array x, const int *op, ROOT_##root hpccoll_world *const *world, hpccoll_plan **plan, \
                                 array out, const double *prescale, const double *postscale, const int *compression,   \
                                 int *ierror) {                                                                        \
        place from, to;                                                                                                \
        *plan = NULL;                                                                                                  \
        options o;                                                                                                     \
        int status = read_array("hpccoll_" #name "_init", "x", x, &from);                                              \
        status = status < 0 ? status : read_array("hpccoll_" #name "_init", "out", out ? out : x, &to);                \
        if (status >= 0 && (to.count != from.count || to.dtype != from.dtype))                                         \
            status = refuse("hpccoll_" #name "_init", "out", "has not the type and size of x");                        \
        if (status >= 0) {                                                                                             \
            const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, compression, 1);                    \
            status = hpccoll_##name##_init(from.data, to.data, from.count, from.dtype, (hpccoll_reduction) * op,       \
                                           GIVE_##root args, *world, plan);                                            \
        }                                                                                                              \
        report(status, ierror);                                                                                        \
    }
REDUCTION_PLAN(allreduce, all)
REDUCTION_PLAN(scan, all)
REDUCTION_PLAN(exscan, all)
REDUCTION_PLAN(reduce, rooted)

void hpccoll_f_broadcast_init(array x, const int *root, hpccoll_world *const *world, hpccoll_plan **plan, int *ierror) {
    *plan = NULL;
    place p;
    int status = read_array("hpccoll_broadcast_init", "x", x, &p);
    report(status < 0 ? status : hpccoll_broadcast_init(p.data, p.count, p.dtype, *root, NULL, *world, plan), ierror);
}

void hpccoll_f_reducescatter_init(array x, array out, const int *op, hpccoll_world *const *world, hpccoll_plan **plan,
                                  const double *prescale, const double *postscale, int *ierror) {
    *plan = NULL;
    place from, to;
    options o;
    int status = read_shares("hpccoll_reducescatter_init", x, out, *world, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, NULL, from.row);
        status = hpccoll_reducescatter_init(from.data, to.data, from.count, from.dtype, (hpccoll_reduction)*op, args,
                                            *world, plan);
    }
    report(status, ierror);
}

void hpccoll_f_allgather_init(array x, array out, hpccoll_world *const *world, hpccoll_plan **plan, int64_t *counts,
                              int *ierror) {
    *plan = NULL;
    place from, to;
    options o;
    int status = read_both("hpccoll_allgather_init", x, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, from.row);
        status = hpccoll_allgather_init(from.data, from.count, from.dtype, to.data, to.count, counts, args, *world,
                                        plan);
    }
    report(status, ierror);
}

void hpccoll_f_gather_init(array x, array out, const int *root, hpccoll_world *const *world, hpccoll_plan **plan,
                           int64_t *counts, int *ierror) {
    *plan = NULL;
    place from, to;
    options o;
    int status = read_gathered("hpccoll_gather_init", x, out, hpccoll_rank(*world) == *root, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, from.row);
        status = hpccoll_gather_init(from.data, from.count, from.dtype, to.data, to.count, counts, *root, args, *world,
                                     plan);
    }
    report(status, ierror);
}

void hpccoll_f_scatter_init(array x, array out, const int *root, hpccoll_world *const *world, hpccoll_plan **plan,
                            const int64_t *splits, int *ierror) {
    *plan = NULL;
    place from, to;
    options o;
    int status = read_both("hpccoll_scatter_init", hpccoll_rank(*world) == *root ? x : out, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, to.row);
        status = hpccoll_scatter_init(from.data, from.count, splits, to.dtype, to.data, to.count, *root, args, *world,
                                      plan);
    }
    report(status, ierror);
}

void hpccoll_f_alltoall_init(array x, array out, hpccoll_world *const *world, hpccoll_plan **plan,
                             const int64_t *splits, int64_t *recv_counts, int *ierror) {
    *plan = NULL;
    place from, to;
    options o;
    int status = read_both("hpccoll_alltoall_init", x, out, &from, &to);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, from.row);
        status = hpccoll_alltoall_init(from.data, from.count, splits, from.dtype, to.data, to.count, recv_counts, args,
                                       *world, plan);
    }
    report(status, ierror);
}

void hpccoll_f_barrier_init(hpccoll_world *const *world, hpccoll_plan **plan, int *ierror) {
    *plan = NULL;
    own_error[0] = 0;
    report(hpccoll_barrier_init(NULL, *world, plan), ierror);
}

void hpccoll_f_send_init(array x, const int *dest, const int *tag, hpccoll_world *const *world, hpccoll_plan **plan,
                         int *ierror) {
    *plan = NULL;
    place p;
    int status = read_array("hpccoll_send_init", "x", x, &p);
    report(status < 0 ? status : hpccoll_send_init(p.data, p.count, p.dtype, *dest, *tag, *world, plan), ierror);
}

void hpccoll_f_recv_init(array x, const int *source, const int *tag, hpccoll_world *const *world, hpccoll_plan **plan,
                         int *from, int64_t *received, int *ierror) {
    *plan = NULL;
    place p;
    int status = read_array("hpccoll_recv_init", "x", x, &p);
    report(status < 0 ? status
                      : hpccoll_recv_init(p.data, p.count, p.dtype, *source, *tag, from, received, *world, plan),
           ierror);
}

void hpccoll_f_plan_list(const int *n, hpccoll_plan **plans, hpccoll_plan **list, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_plan_list(*n, plans, list), ierror);
}

void hpccoll_f_start(hpccoll_plan *const *plan, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_start(*plan), ierror);
}

void hpccoll_f_startall(const int *n, hpccoll_plan *const *plans, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_startall(*n, plans), ierror);
}

void hpccoll_f_plan_wait(hpccoll_plan *const *plan, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_plan_wait(*plan), ierror);
}

void hpccoll_f_plan_waitall(const int *n, hpccoll_plan *const *plans, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_plan_waitall(*n, plans), ierror);
}

void hpccoll_f_plan_test(hpccoll_plan *const *plan, int *done, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_plan_test(*plan, done), ierror);
}

void hpccoll_f_plan_free(hpccoll_plan **plan, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_plan_free(plan), ierror);
}

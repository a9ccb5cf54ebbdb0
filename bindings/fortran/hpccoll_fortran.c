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

#define NAME_BYTES 4098 /* one byte more than the longest name: the library refuses a longer one */

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

/* HPCCOLL_NO_COMPRESSION: it has none. */
static hpccoll_dtype dtype_of(array x) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (x->type == types[i].type)
            return types[i].dtype;
    return HPCCOLL_NO_COMPRESSION;
}

static int find_type(const char *procedure, const char *argument, array x, hpccoll_dtype *dtype) {
    *dtype = dtype_of(x);
    if (*dtype != HPCCOLL_NO_COMPRESSION)
        return HPCCOLL_OK;
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
        if (x->dim[d].extent < 0 && x->base_addr)
            return refuse(procedure, argument, "is of assumed size (*): give a section with its bounds, as x(1:n)");
        p->count *= x->dim[d].extent;
        if (d + 1 < x->rank)
            p->row *= x->dim[d].extent ? x->dim[d].extent : 1;
    }
    if (p->count && !x->base_addr)
        return refuse(procedure, argument, "is not allocated");
    if (p->count && !is_contiguous(x))
        return refuse(procedure, argument,
                      "is not contiguous, as a section with a stride or a row of a matrix: copy it "
                      "to a contiguous array first");
    p->data = x->base_addr;
    return HPCCOLL_OK;
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

/* The other ranks of a call that was refused here get an error, too. The text of this rank's error is its own. */
static int tell(hpccoll_operation operation, array name, hpccoll_world *world) {
    options o;
    hpccoll_refuse(operation, strstr(own_error, ": ") + 2, read_options(&o, name, NULL, NULL, NULL, 1), world);
    return HPCCOLL_INVALID;
}

static int tell_init(hpccoll_operation operation, hpccoll_world *world) {
    hpccoll_refuse_init(operation, strstr(own_error, ": ") + 2, world);
    return HPCCOLL_INVALID;
}

/* ---- Worlds --------------------------------------------------------------------------------------------------- */

/* comm: an integer, or a type(MPI_Comm), which begins with that integer. */
void hpccoll_f_world(const int *comm, hpccoll_world **world, array given, int *ierror) {
    char text[NAME_BYTES];
    own_error[0] = 0;
    report(hpccoll_world_from_fortran(*comm, text_of(given, text), world), ierror);
}

void hpccoll_f_launched(hpccoll_world **world, array given, int *ierror) {
    char text[NAME_BYTES];
    own_error[0] = 0;
    report(hpccoll_world_from_launcher(text_of(given, text), world), ierror);
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

/* With wrong `ranks` it asks for a set of none: so the library refuses the call, and tells the other ranks. */
void hpccoll_f_subset(hpccoll_world *const *world, array ranks, hpccoll_world **subset, int *ierror) {
    place p;
    int wrong = read_array("hpccoll_subset", "ranks", ranks, &p);
    int status = hpccoll_subset(*world, wrong < 0 ? NULL : p.data, wrong < 0 ? 0 : (int)p.count, subset);
    report(wrong < 0 ? wrong : status, ierror);
}

/* ---- grids and halos --------------------------------------------------------------------------------------------- */

void hpccoll_f_dims_create(const int *size, array dims, int *ierror) {
    place p;
    int status = read_array("hpccoll_dims_create", "dims", dims, &p);
    report(status < 0 ? status : hpccoll_dims_create(*size, (int)p.count, p.data), ierror);
}

void hpccoll_f_cart_create(hpccoll_world *const *world, const int *ndims, const int *dims, const int *periods,
                           hpccoll_world **cart, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_cart_create(*world, *ndims, dims, periods, cart), ierror);
}

void hpccoll_f_cart_dims(hpccoll_world *const *cart, array dims, int *ierror) {
    place p;
    int status = read_array("hpccoll_cart_dims", "dims", dims, &p);
    status = status < 0 ? status : hpccoll_cart_dims(*cart, (int)p.count, p.data);
    report(status < 0 ? status : HPCCOLL_OK, ierror);
}

void hpccoll_f_cart_coords(hpccoll_world *const *cart, const int *rank, array coords, int *ierror) {
    place p;
    int status = read_array("hpccoll_cart_coords", "coords", coords, &p);
    report(status < 0 ? status : hpccoll_cart_coords(*cart, *rank, (int)p.count, p.data), ierror);
}

void hpccoll_f_cart_rank(hpccoll_world *const *cart, array coords, int *rank, int *ierror) {
    place p;
    int status = read_array("hpccoll_cart_rank", "coords", coords, &p), ndims = hpccoll_cart_dims(*cart, 0, NULL);
    if (status >= 0 && ndims >= 0 && p.count != ndims)
        status = refuse("hpccoll_cart_rank", "coords", "has not an element for each dimension of the grid");
    report(status < 0 ? status : hpccoll_cart_rank(*cart, p.data, rank), ierror);
}

void hpccoll_f_cart_shift(hpccoll_world *const *cart, const int *dimension, const int *displacement, int *source,
                          int *dest, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_cart_shift(*cart, *dimension, *displacement, source, dest), ierror);
}

typedef struct halo {
    int64_t shape[CFI_MAX_RANK], strides[CFI_MAX_RANK];
    int width[64], corners;
    hpccoll_dtype dtype;
} halo;

/* One width is that of all dimensions. `ndims` below 0: there is no grid, as the library will say. */
static int read_widths(const char *procedure, array width, int ndims, halo *h) {
    place p;
    int status = read_array(procedure, "width", width, &p);
    if (status >= 0 && ndims >= 0 && p.count != ndims && p.count != 1)
        status = refuse(procedure, "width", "is for each dimension of the grid, or one number for all of them");
    for (int d = 0; status >= 0 && d < ndims; d++)
        h->width[d] = ((const int *)p.data)[p.count == 1 ? 0 : d];
    return status;
}

/* A logical of any kind, none of which but c_bool has a dtype; NULL: it is absent, which is .true. */
static int read_corners(const char *procedure, array corners, halo *h) {
    hpccoll_dtype dtype = corners ? dtype_of(corners) : HPCCOLL_BOOL;
    h->corners = !corners;
    if (corners && (corners->rank || (dtype != HPCCOLL_BOOL && dtype != HPCCOLL_NO_COMPRESSION)))
        return refuse(procedure, "corners", "is no logical");
    for (size_t i = 0; corners && i < corners->elem_len; i++)
        h->corners |= ((const char *)corners->base_addr)[i] != 0;
    return HPCCOLL_OK;
}

/* The array may be a section with strides. */
static int read_halo(const char *procedure, array u, array width, const hpccoll_world *cart, array corners, halo *h) {
    *h = (halo){.dtype = HPCCOLL_FLOAT64};
    int status = read_widths(procedure, width, hpccoll_cart_dims(cart, 0, NULL), h);
    if (status >= 0)
        status = read_corners(procedure, corners, h);
    if (status >= 0)
        status = find_type(procedure, "u", u, &h->dtype);
    for (int d = 0; status >= 0 && d < u->rank; d++) {
        if (u->dim[d].extent < 0)
            status = refuse(procedure, "u", "is of assumed size (*): give a section with its bounds, as u(1:n)");
        h->shape[d] = u->dim[d].extent;
        h->strides[d] = u->dim[d].sm;
    }
    return status;
}

/* An array that is wrong here has the dtype of none: so the library refuses the call, and tells the other ranks. */
void hpccoll_f_halo_exchange_init(array u, array width, hpccoll_world *const *cart, hpccoll_plan **plan, array corners,
                                  int *ierror) {
    halo h;
    *plan = NULL;
    int wrong = read_halo("hpccoll_halo_exchange_init", u, width, *cart, corners, &h);
    int status = hpccoll_halo_exchange_init(u->base_addr, wrong < 0 ? HPCCOLL_NO_COMPRESSION : h.dtype, u->rank,
                                            h.shape, h.strides, h.width, h.corners, *cart, plan);
    report(wrong < 0 ? wrong : status, ierror);
}

void hpccoll_f_halo_exchange(array u, array width, hpccoll_world *const *cart, array corners, int *ierror) {
    halo h;
    int status = read_halo("hpccoll_halo_exchange", u, width, *cart, corners, &h);
    if (status >= 0)
        status = hpccoll_halo_exchange(u->base_addr, h.dtype, u->rank, h.shape, h.strides, h.width, h.corners, *cart);
    report(status, ierror);
}

void hpccoll_f_lost_ranks(hpccoll_world *const *world, const int *capacity, int *ranks, int *count, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_lost_ranks(*world, *capacity, ranks, count), ierror);
}

void hpccoll_f_world_changes(hpccoll_world *const *world, int *changes, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_world_changes(*world, changes), ierror);
}

void hpccoll_f_leave(hpccoll_world *const *world, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_leave(*world), ierror);
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

/* The array of a reduction and that of its result, which may be absent: then it is the same one. */
static int read_equal(const char *procedure, array x, array out, place *from, place *to) {
    int status = read_array(procedure, "x", x, from);
    status = status < 0 ? status : read_array(procedure, "out", out ? out : x, to);
    if (status >= 0 && (to->count != from->count || to->dtype != from->dtype))
        return refuse(procedure, "out", "has not the type and size of x");
    return status;
}

/* Two arrays of one type. */
static int read_pair(const char *procedure, array x, array out, place *from, place *to) {
    int status = read_array(procedure, "x", x, from);
    if (status < 0 || (status = read_array(procedure, "out", out, to)) < 0)
        return status;
    return from->dtype == to->dtype ? HPCCOLL_OK : refuse(procedure, "out", "has not the type of x");
}

/* The same, and their rows have one size. */
static int read_both(const char *procedure, array x, array out, place *from, place *to) {
    int status = read_pair(procedure, x, out, from, to);
    if (status >= 0 && x->rank && out->rank && from->row != to->row)
        return refuse(procedure, "out", "has not the shape of x in all dimensions but the last");
    return status;
}

static int read_shares(const char *procedure, array x, array out, hpccoll_world *world, place *from, place *to) {
    int status = read_both(procedure, x, out, from, to);
    if (status < 0 || hpccoll_size(world) < 1 ||
        to->count == hpccoll_share(from->count / from->row, hpccoll_size(world), hpccoll_rank(world)) * from->row)
        return status;
    return refuse(procedure, "out", "has not the size of this rank's share (hpccoll_share)");
}

/* `out` of other ranks than the root is not read, and need not be allocated. */
static int read_gathered(const char *procedure, array x, array out, int is_root, place *from, place *to) {
    int status = read_both(procedure, x, is_root ? out : x, from, to);
    if (!is_root)
        *to = (place){.row = 1};
    return status;
}

/* `x` of other ranks than the root is not read. */
static int read_scattered(const char *procedure, array x, array out, int is_root, place *from, place *to) {
    int status = read_both(procedure, is_root ? x : out, out, from, to);
    from->row = to->row;
    return status;
}

/* generated: glue (make bindings) */
void hpccoll_f_allreduce(array x, const int *op, hpccoll_world *const *world, array out, array name,
                         const double *prescale, const double *postscale, const int *compression,
                         hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_equal("hpccoll_allreduce", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, compression, 1);
        if (request)
            status = hpccoll_allreduce_async(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op,
                                             args, *world, request);
        else
            status = hpccoll_allreduce(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                       *world);
    } else {
        status = tell(HPCCOLL_ALLREDUCE, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_reduce(array x, const int *op, const int *root, hpccoll_world *const *world, array out, array name,
                      const double *prescale, const double *postscale, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_equal("hpccoll_reduce", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, NULL, 1);
        if (request)
            status = hpccoll_reduce_async(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op,
                                          *root, args, *world, request);
        else
            status = hpccoll_reduce(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, *root,
                                    args, *world);
    } else {
        status = tell(HPCCOLL_REDUCE, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_scan(array x, const int *op, hpccoll_world *const *world, array out, array name, const double *prescale,
                    const double *postscale, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_equal("hpccoll_scan", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, NULL, 1);
        if (request)
            status = hpccoll_scan_async(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                        *world, request);
        else
            status = hpccoll_scan(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                  *world);
    } else {
        status = tell(HPCCOLL_SCAN, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_exscan(array x, const int *op, hpccoll_world *const *world, array out, array name,
                      const double *prescale, const double *postscale, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_equal("hpccoll_exscan", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, NULL, 1);
        if (request)
            status = hpccoll_exscan_async(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op,
                                          args, *world, request);
        else
            status = hpccoll_exscan(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                    *world);
    } else {
        status = tell(HPCCOLL_EXSCAN, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_broadcast(array x, const int *root, hpccoll_world *const *world, array name, hpccoll_request **request,
                         int *ierror) {
    options o;
    place input;
    int status = read_array("hpccoll_broadcast", "x", x, &input);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, 1);
        if (request)
            status = hpccoll_broadcast_async(input.data, input.count, input.dtype, *root, args, *world, request);
        else
            status = hpccoll_broadcast(input.data, input.count, input.dtype, *root, args, *world);
    } else {
        status = tell(HPCCOLL_BROADCAST, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_reducescatter(array x, array out, const int *op, hpccoll_world *const *world, array name,
                             const double *prescale, const double *postscale, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_shares("hpccoll_reducescatter", x, out, *world, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, prescale, postscale, NULL, input.row);
        if (request)
            status = hpccoll_reducescatter_async(input.data, result.data, input.count, input.dtype,
                                                 (hpccoll_reduction)*op, args, *world, request);
        else
            status = hpccoll_reducescatter(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op,
                                           args, *world);
    } else {
        status = tell(HPCCOLL_REDUCESCATTER, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_allgather(array x, array out, hpccoll_world *const *world, int64_t *counts, array name,
                         hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_both("hpccoll_allgather", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, input.row);
        if (request)
            status = hpccoll_allgather_async(input.data, input.count, input.dtype, result.data, result.count, counts,
                                             args, *world, request);
        else
            status = hpccoll_allgather(input.data, input.count, input.dtype, result.data, result.count, counts, args,
                                       *world);
    } else {
        status = tell(HPCCOLL_ALLGATHER, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_gather(array x, array out, const int *root, hpccoll_world *const *world, int64_t *counts, array name,
                      hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_gathered("hpccoll_gather", x, out, hpccoll_rank(*world) == *root, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, input.row);
        if (request)
            status = hpccoll_gather_async(input.data, input.count, input.dtype, result.data, result.count, counts,
                                          *root, args, *world, request);
        else
            status = hpccoll_gather(input.data, input.count, input.dtype, result.data, result.count, counts, *root,
                                    args, *world);
    } else {
        status = tell(HPCCOLL_GATHER, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_scatter(array x, array out, const int *root, hpccoll_world *const *world, const int64_t *splits,
                       array name, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_scattered("hpccoll_scatter", x, out, hpccoll_rank(*world) == *root, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, input.row);
        if (request)
            status = hpccoll_scatter_async(input.data, input.count, splits, input.dtype, result.data, result.count,
                                           *root, args, *world, request);
        else
            status = hpccoll_scatter(input.data, input.count, splits, input.dtype, result.data, result.count, *root,
                                     args, *world);
    } else {
        status = tell(HPCCOLL_SCATTER, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_alltoall(array x, array out, hpccoll_world *const *world, const int64_t *splits, int64_t *recv_counts,
                        array name, hpccoll_request **request, int *ierror) {
    options o;
    place input, result;
    int status = read_both("hpccoll_alltoall", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, input.row);
        if (request)
            status = hpccoll_alltoall_async(input.data, input.count, splits, input.dtype, result.data, result.count,
                                            recv_counts, args, *world, request);
        else
            status = hpccoll_alltoall(input.data, input.count, splits, input.dtype, result.data, result.count,
                                      recv_counts, args, *world);
    } else {
        status = tell(HPCCOLL_ALLTOALL, name, *world);
    }
    report(status, ierror);
}

void hpccoll_f_barrier(hpccoll_world *const *world, array name, hpccoll_request **request, int *ierror) {
    options o;
    int status;
    own_error[0] = 0;
    const hpccoll_args *args = read_options(&o, name, NULL, NULL, NULL, 1);
    if (request)
        status = hpccoll_barrier_async(args, *world, request);
    else
        status = hpccoll_barrier(args, *world);
    report(status, ierror);
}

void hpccoll_f_join(hpccoll_world *const *world, int *last, int *ierror) {
    int status;
    own_error[0] = 0;
    status = hpccoll_join(last, *world);
    report(status, ierror);
}

void hpccoll_f_send(array x, const int *dest, const int *tag, hpccoll_world *const *world, hpccoll_request **request,
                    int *ierror) {
    place input;
    int status = read_array("hpccoll_send", "x", x, &input);
    if (status >= 0) {
        if (request)
            status = hpccoll_send_async(input.data, input.count, input.dtype, *dest, *tag, *world, request);
        else
            status = hpccoll_send(input.data, input.count, input.dtype, *dest, *tag, *world);
    }
    report(status, ierror);
}

void hpccoll_f_recv(array x, const int *source, const int *tag, hpccoll_world *const *world, int *from,
                    int64_t *received, hpccoll_request **request, int *ierror) {
    place input;
    int status = read_array("hpccoll_recv", "x", x, &input);
    if (status >= 0) {
        if (request)
            status = hpccoll_recv_async(input.data, input.count, input.dtype, *source, *tag, from, received, *world,
                                        request);
        else
            status = hpccoll_recv(input.data, input.count, input.dtype, *source, *tag, from, received, *world);
    }
    report(status, ierror);
}

void hpccoll_f_sendrecv(array x, array out, const int *dest, const int *source, const int *sendtag, const int *recvtag,
                        hpccoll_world *const *world, int *from, int64_t *received, int *ierror) {
    place input, result;
    int status = read_pair("hpccoll_sendrecv", x, out, &input, &result);
    if (status >= 0)
        status = hpccoll_sendrecv(input.data, input.count, input.dtype, *dest, *sendtag, result.data, result.count,
                                  *source, *recvtag, from, received, *world);
    report(status, ierror);
}

void hpccoll_f_probe(const int *source, const int *tag, hpccoll_world *const *world, int *from, int *found_tag,
                     int64_t *bytes, int *ierror) {
    int status;
    own_error[0] = 0;
    status = hpccoll_probe(*source, *tag, from, found_tag, bytes, *world);
    report(status, ierror);
}
/* end of generated */

void hpccoll_f_iprobe(const int *source, const int *tag, hpccoll_world *const *world, int *there, int *from,
                      int *found_tag, int64_t *bytes, int *ierror) {
    own_error[0] = 0;
    report(hpccoll_iprobe(*source, *tag, there, from, found_tag, bytes, *world), ierror);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

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

/* generated: glue_plans (make bindings) */
void hpccoll_f_allreduce_init(array x, const int *op, hpccoll_world *const *world, hpccoll_plan **plan, array out,
                              const double *prescale, const double *postscale, const int *compression, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_equal("hpccoll_allreduce_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, compression, 1);
        status = hpccoll_allreduce_init(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                        *world, plan);
    } else {
        status = tell_init(HPCCOLL_ALLREDUCE, *world);
    }
    report(status, ierror);
}

void hpccoll_f_reduce_init(array x, const int *op, const int *root, hpccoll_world *const *world, hpccoll_plan **plan,
                           array out, const double *prescale, const double *postscale, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_equal("hpccoll_reduce_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, NULL, 1);
        status = hpccoll_reduce_init(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, *root,
                                     args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_REDUCE, *world);
    }
    report(status, ierror);
}

void hpccoll_f_scan_init(array x, const int *op, hpccoll_world *const *world, hpccoll_plan **plan, array out,
                         const double *prescale, const double *postscale, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_equal("hpccoll_scan_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, NULL, 1);
        status = hpccoll_scan_init(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                   *world, plan);
    } else {
        status = tell_init(HPCCOLL_SCAN, *world);
    }
    report(status, ierror);
}

void hpccoll_f_exscan_init(array x, const int *op, hpccoll_world *const *world, hpccoll_plan **plan, array out,
                           const double *prescale, const double *postscale, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_equal("hpccoll_exscan_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, NULL, 1);
        status = hpccoll_exscan_init(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op, args,
                                     *world, plan);
    } else {
        status = tell_init(HPCCOLL_EXSCAN, *world);
    }
    report(status, ierror);
}

void hpccoll_f_broadcast_init(array x, const int *root, hpccoll_world *const *world, hpccoll_plan **plan, int *ierror) {
    *plan = NULL;
    options o;
    place input;
    int status = read_array("hpccoll_broadcast_init", "x", x, &input);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, 1);
        status = hpccoll_broadcast_init(input.data, input.count, input.dtype, *root, args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_BROADCAST, *world);
    }
    report(status, ierror);
}

void hpccoll_f_reducescatter_init(array x, array out, const int *op, hpccoll_world *const *world, hpccoll_plan **plan,
                                  const double *prescale, const double *postscale, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_shares("hpccoll_reducescatter_init", x, out, *world, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, prescale, postscale, NULL, input.row);
        status = hpccoll_reducescatter_init(input.data, result.data, input.count, input.dtype, (hpccoll_reduction)*op,
                                            args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_REDUCESCATTER, *world);
    }
    report(status, ierror);
}

void hpccoll_f_allgather_init(array x, array out, hpccoll_world *const *world, hpccoll_plan **plan, int64_t *counts,
                              int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_both("hpccoll_allgather_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, input.row);
        status = hpccoll_allgather_init(input.data, input.count, input.dtype, result.data, result.count, counts, args,
                                        *world, plan);
    } else {
        status = tell_init(HPCCOLL_ALLGATHER, *world);
    }
    report(status, ierror);
}

void hpccoll_f_gather_init(array x, array out, const int *root, hpccoll_world *const *world, hpccoll_plan **plan,
                           int64_t *counts, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_gathered("hpccoll_gather_init", x, out, hpccoll_rank(*world) == *root, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, input.row);
        status = hpccoll_gather_init(input.data, input.count, input.dtype, result.data, result.count, counts, *root,
                                     args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_GATHER, *world);
    }
    report(status, ierror);
}

void hpccoll_f_scatter_init(array x, array out, const int *root, hpccoll_world *const *world, hpccoll_plan **plan,
                            const int64_t *splits, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_scattered("hpccoll_scatter_init", x, out, hpccoll_rank(*world) == *root, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, input.row);
        status = hpccoll_scatter_init(input.data, input.count, splits, input.dtype, result.data, result.count, *root,
                                      args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_SCATTER, *world);
    }
    report(status, ierror);
}

void hpccoll_f_alltoall_init(array x, array out, hpccoll_world *const *world, hpccoll_plan **plan,
                             const int64_t *splits, int64_t *recv_counts, int *ierror) {
    *plan = NULL;
    options o;
    place input, result;
    int status = read_both("hpccoll_alltoall_init", x, out, &input, &result);
    if (status >= 0) {
        const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, input.row);
        status = hpccoll_alltoall_init(input.data, input.count, splits, input.dtype, result.data, result.count,
                                       recv_counts, args, *world, plan);
    } else {
        status = tell_init(HPCCOLL_ALLTOALL, *world);
    }
    report(status, ierror);
}

void hpccoll_f_barrier_init(hpccoll_world *const *world, hpccoll_plan **plan, int *ierror) {
    *plan = NULL;
    options o;
    int status;
    own_error[0] = 0;
    const hpccoll_args *args = read_options(&o, NULL, NULL, NULL, NULL, 1);
    status = hpccoll_barrier_init(args, *world, plan);
    report(status, ierror);
}

void hpccoll_f_send_init(array x, const int *dest, const int *tag, hpccoll_world *const *world, hpccoll_plan **plan,
                         int *ierror) {
    *plan = NULL;
    place input;
    int status = read_array("hpccoll_send_init", "x", x, &input);
    if (status >= 0)
        status = hpccoll_send_init(input.data, input.count, input.dtype, *dest, *tag, *world, plan);
    report(status, ierror);
}

void hpccoll_f_recv_init(array x, const int *source, const int *tag, hpccoll_world *const *world, hpccoll_plan **plan,
                         int *from, int64_t *received, int *ierror) {
    *plan = NULL;
    place input;
    int status = read_array("hpccoll_recv_init", "x", x, &input);
    if (status >= 0)
        status = hpccoll_recv_init(input.data, input.count, input.dtype, *source, *tag, from, received, *world, plan);
    report(status, ierror);
}
/* end of generated */

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * hpccoll.h - collective operations for the ranks of a job, from C, C++ and (by the module hpccoll) Fortran.
 *
 * A World is a group of ranks, made from an MPI communicator, or from the processes that a launcher has started. The
 * library is not linked with an MPI; it uses the MPI of the program. All ranks of a World call a collective. Calls
 * without a name match by their order in the program, as in MPI; named calls match by their name, in any order on any
 * rank.
 *
 * Every function returns HPCCOLL_OK (0) or a negative status, unless it says otherwise. After an error,
 * hpccoll_last_error() names the call, the ranks and the values. An error that concerns all ranks is the same on all
 * of them, and leaves the arrays unchanged.
 *
 * Arrays lie in host memory or on a GPU: if the process has opened the CUDA driver before it makes a World (by
 * cudaSetDevice(), say), the calls of that World ask it about their addresses. The program has made such arrays ready
 * before a call; after it, or after the wait, the values are complete for all streams. The arrays of a call lie in one
 * memory, on all ranks; a message may go from one kind to the other. User-defined reductions and plans take arrays in
 * host memory.
 *
 * Any thread may call any function. If several threads have calls in flight at once, the calls must have names. With
 * MPI_THREAD_SINGLE or FUNNELED and several nodes, calls go on only while the thread that made the World is in one.
 */
#ifndef HPCCOLL_H
#define HPCCOLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HPCCOLL_VERSION "0.1.0"
#define HPCCOLL_API __attribute__((visibility("default")))

/* ---- codes: the same numbers as in ext/core/hc.h, which the build checks --------------------------------------- */

/* generated: codes (make bindings) */
typedef enum hpccoll_dtype {
    HPCCOLL_NO_COMPRESSION = -1, /* of hpccoll_args: no dtype */
    HPCCOLL_BOOL = 0,
    HPCCOLL_UINT8,
    HPCCOLL_INT8,
    HPCCOLL_UINT16,
    HPCCOLL_INT16,
    HPCCOLL_UINT32,
    HPCCOLL_INT32,
    HPCCOLL_UINT64,
    HPCCOLL_INT64,
    HPCCOLL_FLOAT16,
    HPCCOLL_BFLOAT16,
    HPCCOLL_FLOAT32,
    HPCCOLL_FLOAT64,
    HPCCOLL_COMPLEX64,
    HPCCOLL_COMPLEX128,
    HPCCOLL_DTYPES /* how many there are */
} hpccoll_dtype;

typedef enum hpccoll_operation {
    HPCCOLL_ALLREDUCE = 0,
    HPCCOLL_ALLGATHER,
    HPCCOLL_BROADCAST,
    HPCCOLL_REDUCESCATTER,
    HPCCOLL_ALLTOALL,
    HPCCOLL_BARRIER,
    HPCCOLL_JOIN,
    HPCCOLL_REDUCE,
    HPCCOLL_GATHER,
    HPCCOLL_SCATTER,
    HPCCOLL_SCAN,
    HPCCOLL_EXSCAN,
    HPCCOLL_OPERATIONS
} hpccoll_operation;

typedef enum hpccoll_reduction {
    HPCCOLL_OP_NULL = -1, /* no reduction: an op that was freed */
    HPCCOLL_AVERAGE = 0,
    HPCCOLL_SUM,
    HPCCOLL_ADASUM, /* of the front ends for Python alone; refused here */
    HPCCOLL_MIN,
    HPCCOLL_MAX,
    HPCCOLL_PRODUCT,
    HPCCOLL_BAND,
    HPCCOLL_BOR,
    HPCCOLL_BXOR,
    HPCCOLL_LAND,
    HPCCOLL_LOR,
    HPCCOLL_LXOR,
    HPCCOLL_REDUCTIONS, /* how many the library has */
    HPCCOLL_MINLOC = 64,
    HPCCOLL_MAXLOC = 65,
    HPCCOLL_OP_LAST = 254 /* numbers behind MAXLOC are those of hpccoll_op_create() */
} hpccoll_reduction;

typedef enum hpccoll_status {
    HPCCOLL_OK = 0,
    HPCCOLL_MISMATCH = -1,       /* ranks disagree about a call */
    HPCCOLL_DUPLICATE_NAME = -2, /* a call of this name is in flight */
    HPCCOLL_SHUT_DOWN = -3,      /* the World was freed, or another rank has left it */
    HPCCOLL_ROOT_JOINED = -4,
    HPCCOLL_PEER_LOST = -5,
    HPCCOLL_STALLED = -6,
    HPCCOLL_TRANSPORT = -7, /* MPI, shared memory, or the start failed */
    HPCCOLL_INVALID = -8,   /* an argument; nothing was sent */
    HPCCOLL_NO_MEMORY = -9,
    HPCCOLL_BAD_MESSAGE = -10,
    HPCCOLL_FORKED = -11,
    HPCCOLL_BROKEN = -12,
    HPCCOLL_UNSUPPORTED = -13,
    HPCCOLL_RESULT_SIZE = -14 /* the output has not the size of the result */
} hpccoll_status;
/* end of generated */

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* The text of a status. */
HPCCOLL_API const char *hpccoll_strerror(int status);
/* The text of this thread's last error; "" if there was none. Valid until the next error. */
HPCCOLL_API const char *hpccoll_last_error(void);
/* The version of the library; HPCCOLL_VERSION is the version of the header. */
HPCCOLL_API const char *hpccoll_version(void);

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

typedef struct hpccoll_world hpccoll_world;

/* Makes a World of the ranks of an MPI communicator; all of them call it. The caller keeps the communicator, and may
 * free it. MPI must be initialised; with MPI_THREAD_MULTIPLE a background thread helps between nodes.
 *
 * `options`: NULL, or knobs as "stall_limit=60 nodes=2", which take precedence over variables as HPCCOLL_STALL_LIMIT.
 * If ranks do not call it within the knob start_timeout, the error HPCCOLL_TRANSPORT names them. MPI_Finalize frees
 * Worlds that were not freed. */
#ifdef __cplusplus
} /* extern "C": the next one is a template */
extern "C" HPCCOLL_API int hpccoll_world_from_comm(const void *comm, size_t comm_bytes, const char *options,
                                                   hpccoll_world **world);
template <class Comm> int hpccoll_world_from_mpi(Comm comm, const char *options, hpccoll_world **world) {
    return hpccoll_world_from_comm(&comm, sizeof comm, options, world);
}
extern "C" {
#else
#define hpccoll_world_from_mpi(comm, options, world) \
    hpccoll_world_from_comm(&(MPI_Comm){comm}, sizeof(MPI_Comm), options, world)
#endif
/* The same with the address and the size of the communicator. */
HPCCOLL_API int hpccoll_world_from_comm(const void *comm, size_t comm_bytes, const char *options,
                                        hpccoll_world **world);
/* The same for a communicator of Fortran: its integer, which is MPI_VAL of a type(MPI_Comm). */
HPCCOLL_API int hpccoll_world_from_fortran(int comm, const char *options, hpccoll_world **world);
/* A World of all processes that a launcher has started, without MPI: `hpccoll run --launcher ssh`, `srun --mpi=pmix`,
 * or another launcher with PMIx; of this process alone if there is no launcher. All processes call it equally often.
 * Between nodes the data go over UCX. */
HPCCOLL_API int hpccoll_world_from_launcher(const char *options, hpccoll_world **world);
/* A World of this process alone, without MPI. */
HPCCOLL_API int hpccoll_world_alone(const char *options, hpccoll_world **world);
/* The World that the Python part of this program has made: `capsule_pointer` is the pointer in the capsule that
 * hpccoll.capsule() returns. Python ends the World; freeing it here only ends its use in C. */
HPCCOLL_API int hpccoll_world_from_python(void *capsule_pointer, hpccoll_world **world);
/* Ends the World on this rank: waits for the other ranks, at most for the knob stop_timeout, ends all calls in flight,
 * and sets *world to NULL. Process sets made from it end with it. NULL is allowed. */
HPCCOLL_API int hpccoll_world_free(hpccoll_world **world);

HPCCOLL_API int hpccoll_rank(const hpccoll_world *world); /* or a status, like the next three */
HPCCOLL_API int hpccoll_size(const hpccoll_world *world);
HPCCOLL_API int hpccoll_local_rank(const hpccoll_world *world); /* among the ranks of its node */
HPCCOLL_API int hpccoll_local_size(const hpccoll_world *world);
HPCCOLL_API int hpccoll_node_of(const hpccoll_world *world, int rank); /* number of the node of a rank, or a status */

/* 1: the calls of this World take the address for device memory; 0: for host memory; or a status. */
HPCCOLL_API int hpccoll_on_device(const void *address, const hpccoll_world *world);

/* Makes a World of some ranks of `world`, in this order. All ranks of `world` call it with the same `ranks`. *subset is
 * NULL on ranks that are not in it. One thread at a time may call it on a World, as with MPI: else it is an error on
 * all ranks. */
HPCCOLL_API int hpccoll_subset(hpccoll_world *world, const int *ranks, int n, hpccoll_world **subset);
/* Makes a World per color, ordered by (key, rank). HPCCOLL_UNDEFINED: this rank gets NULL. All ranks call it,
 * each from one thread at a time. */
#define HPCCOLL_UNDEFINED (-32766)
HPCCOLL_API int hpccoll_split(hpccoll_world *world, int color, int key, hpccoll_world **part);

/* Reads a counter of this rank by name ("requests", "net_sent_bytes", ...), as World.stats() in Python names them. */
HPCCOLL_API int hpccoll_stat(hpccoll_world *world, const char *name, uint64_t *value);
/* The name of counter number `i`; NULL after the last. */
HPCCOLL_API const char *hpccoll_stat_name(int i);

/* Makes progress without blocking, for programs whose World has no background thread. */
HPCCOLL_API int hpccoll_progress(hpccoll_world *world);

/* ---- grids of ranks -------------------------------------------------------------------------------------------- */

/* Replaces the zeros in `dims` so that the product of all extents is `size`, as evenly as possible, as MPI_Dims_create
 * does. This needs no World. */
HPCCOLL_API int hpccoll_dims_create(int size, int ndims, int *dims);
/* Makes a World of the first ranks of `world` on a grid with these extents, in row-major order. A 0 in `dims` is chosen
 * as by hpccoll_dims_create(). `periods`: for each dimension, 1: its ends touch; NULL: none does. All ranks call it
 * with the same grid. *cart is NULL on ranks for which there is no place. One thread at a time, as hpccoll_subset(). */
HPCCOLL_API int hpccoll_cart_create(hpccoll_world *world, int ndims, const int *dims, const int *periods,
                                    hpccoll_world **cart);
/* Writes the extents of the first `ndims` dimensions. Returns the number of dimensions, or a status. */
HPCCOLL_API int hpccoll_cart_dims(const hpccoll_world *cart, int ndims, int *dims);
HPCCOLL_API int hpccoll_cart_coords(const hpccoll_world *cart, int rank, int ndims, int *coords);
/* The rank at these coordinates. Beyond the end of a dimension they go on at its beginning, or *rank is
 * HPCCOLL_PROC_NULL if its ends do not touch. */
HPCCOLL_API int hpccoll_cart_rank(const hpccoll_world *cart, const int *coords, int *rank);
/* The ranks that a shift along a dimension (from 0) receives from and sends to; HPCCOLL_PROC_NULL: there is none. */
HPCCOLL_API int hpccoll_cart_shift(const hpccoll_world *cart, int dimension, int displacement, int *source, int *dest);
/* generated: grids (make bindings) */
/* Fills the halo of an array from the neighbours on the grid of `world` (hpccoll_cart_create()) with their cells next
 * to the common side. All ranks call it. It compares nothing before: a side of another size or dtype is
 * HPCCOLL_RESULT_SIZE or HPCCOLL_MISMATCH on the rank that receives it.
 * Dimension d of the array is divided along dimension d of the grid; further dimensions are whole on each rank. The
 * outermost width[d] cells on both sides are the halo, the cells inside, at least as many, belong to this rank; 0: no
 * halo. A halo where the grid ends keeps its values. `corners` 1: also fills the corners and edges. `strides`: the
 * bytes from an element to the next one along each dimension; NULL: contiguous, and the last dimension is the fastest.
 * The array lies in host memory. */
HPCCOLL_API int hpccoll_halo_exchange(void *array, hpccoll_dtype dtype, int ndims, const int64_t *shape,
                                      const int64_t *strides, const int *width, int corners, hpccoll_world *world);
/* end of generated */

/* ---- lost ranks, and the changes of an elastic job's ranks --------------------------------------------------------
 *
 * In an elastic job, `hpccoll run -np N --min-np M`, ranks may be lost, and new ones may come in. The program frees its
 * World and calls hpccoll_world_from_launcher() again
 *
 *   - after an error that has broken the World: hpccoll_world_free() then returns that error, HPCCOLL_PEER_LOST mostly;
 *   - after HPCCOLL_PEER_LOST of hpccoll_world_from_launcher(): a rank was lost while the World was made;
 *   - after hpccoll_world_changes() has given 1.
 *
 * It waits until all ranks that are left have called it, and makes the World of these, in their old order, and of the
 * new ranks behind them. The state is the program's: after each start the ranks find out which of them has the newest
 * one, and broadcast that. If hpccoll_world_from_launcher() returns HPCCOLL_SHUT_DOWN, the job does not need this
 * process any more: end it with status 0. docs/from-c.md has a program. */

/* The ranks of `world` that were lost, as far as this rank knows; none before a call has returned a loss. The first
 * `capacity` of them go to `ranks`; *count says how many there are. In any World but Python's, elastic or not. */
HPCCOLL_API int hpccoll_lost_ranks(const hpccoll_world *world, int capacity, int *ranks, int *count);
/* *changes 1: the ranks are about to change, because a new one waits, or one must leave. All ranks call it after the
 * same collective of `world`, and get the same answer, so that no step is lost. Plans, and calls of subsets, splits and
 * grids, do not count: after these alone the answer stays 0. It sends no message and does not wait. By this call a rank
 * says that it has the program's state: if all such ranks are lost, the job ends. `world` is the World of all ranks; in
 * a job that is not elastic the answer is 0. */
HPCCOLL_API int hpccoll_world_changes(hpccoll_world *world, int *changes);
/* Asks the launcher to take this rank out of the job, as for a program that got SIGTERM: soon hpccoll_world_changes()
 * gives 1 on all ranks. HPCCOLL_TRANSPORT: the launcher is gone, so the ranks cannot change. A signal handler must not
 * call it. */
HPCCOLL_API int hpccoll_leave(const hpccoll_world *world);

/* ---- optional arguments of every call -------------------------------------------------------------------------- */

typedef struct hpccoll_args {
    const char *name;           /* NULL: the call matches by its order in the program */
    double prescale, postscale; /* factors of a SUM or AVERAGE of floats */
    hpccoll_dtype compression;  /* HPCCOLL_FLOAT16 or HPCCOLL_BFLOAT16: the type between nodes for float32 and
                                   float64; or HPCCOLL_NO_COMPRESSION */
    int64_t row;                /* elements per row: allgather, alltoall, gather, scatter and reducescatter count, cut
                                   and concatenate whole rows */
} hpccoll_args;
/* hpccoll_args args = HPCCOLL_ARGS; `args` NULL means the same. */
#ifdef __cplusplus
#define HPCCOLL_ARGS {nullptr, 1.0, 1.0, HPCCOLL_NO_COMPRESSION, 1}
#else
#define HPCCOLL_ARGS {.prescale = 1.0, .postscale = 1.0, .compression = HPCCOLL_NO_COMPRESSION, .row = 1}
#endif
/* The value of `in` if the input is in `out`. */
#ifdef __cplusplus
#define HPCCOLL_IN_PLACE (reinterpret_cast<const void *>(static_cast<intptr_t>(-1)))
#else
#define HPCCOLL_IN_PLACE ((const void *)-1)
#endif
/* The value of `out`, with out_count 0, if the library is to allocate the result: hpccoll_wait_result(). */
#ifdef __cplusplus
#define HPCCOLL_ALLOCATE (reinterpret_cast<void *>(static_cast<intptr_t>(-2)))
#else
#define HPCCOLL_ALLOCATE ((void *)-2)
#endif

/* ---- requests -------------------------------------------------------------------------------------------------- */

/* An asynchronous call in flight. The program must not use its arrays until it is done. */
typedef struct hpccoll_request hpccoll_request;

/* Blocks until the call is done, frees the request and sets it to NULL. Returns the status of the blocking form. A NULL
 * request is done. */
HPCCOLL_API int hpccoll_wait(hpccoll_request **request);
/* Waits for all requests; returns the first error in their order. */
HPCCOLL_API int hpccoll_waitall(int n, hpccoll_request *requests[]);
/* Never blocks. *done 1: the request is freed, and it returns the status of hpccoll_wait(). */
HPCCOLL_API int hpccoll_test(hpccoll_request **request, int *done);
/* The same, but blocks for at most `seconds`. */
HPCCOLL_API int hpccoll_wait_for(hpccoll_request **request, double seconds, int *done);
/* As hpccoll_wait(), for a call with HPCCOLL_ALLOCATE: *data is new memory with *count elements, which the caller
 * passes to hpccoll_release(). It is device memory if `in` is; its work has ended before the release. */
HPCCOLL_API int hpccoll_wait_result(hpccoll_request **request, void **data, int64_t *count);
HPCCOLL_API void hpccoll_release(void *data);

/* ---- collectives -------------------------------------------------------------------------------------------------
 *
 * `count` is in elements of `dtype`. `in` and `out` are contiguous and do not overlap. If a result has the size
 * of the input, they may be the same memory. */

/* An array of a group, whose arrays are agreed, fused and completed together. Each `out` must not overlap the other
 * arrays. */
typedef struct hpccoll_array {
    const void *in; /* or HPCCOLL_IN_PLACE */
    void *out;
    int64_t count;
    hpccoll_dtype dtype;
} hpccoll_array;

/* generated: blocking (make bindings) */
HPCCOLL_API int hpccoll_allreduce(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                                  const hpccoll_args *args, hpccoll_world *world);
/* Only `root` has a result; `out` of the others is ignored. */
HPCCOLL_API int hpccoll_reduce(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                               int root, const hpccoll_args *args, hpccoll_world *world);
/* The reduction over ranks 0 to this one; exscan: to the one before it. Rank 0 gets the neutral element, as
 * 0 of HPCCOLL_SUM, and its `out` stays as it is where a function of the program is the reduction. */
HPCCOLL_API int hpccoll_scan(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                             const hpccoll_args *args, hpccoll_world *world);
HPCCOLL_API int hpccoll_exscan(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                               const hpccoll_args *args, hpccoll_world *world);
HPCCOLL_API int hpccoll_broadcast(void *data, int64_t count, hpccoll_dtype dtype, int root, const hpccoll_args *args,
                                  hpccoll_world *world);
/* `count` elements of `in`; this rank's rows of the sum go to `out`, hpccoll_share() of them. */
HPCCOLL_API int hpccoll_reducescatter(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                      hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world);
/* Each rank's elements, one rank behind the other; ranks may give different counts. `out` has out_count elements, which
 * must be all of them (HPCCOLL_RESULT_SIZE on all ranks otherwise). counts: NULL, or room for the rows of each rank. */
HPCCOLL_API int hpccoll_allgather(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count,
                                  int64_t *counts, const hpccoll_args *args, hpccoll_world *world);
HPCCOLL_API int hpccoll_gather(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count,
                               int64_t *counts, int root, const hpccoll_args *args, hpccoll_world *world);
/* splits: rows for each rank, on the root (others: NULL); NULL: as hpccoll_share() says. `in` and `in_count` are
 * the root's, too. */
HPCCOLL_API int hpccoll_scatter(const void *in, int64_t in_count, const int64_t *splits, hpccoll_dtype dtype, void *out,
                                int64_t out_count, int root, const hpccoll_args *args, hpccoll_world *world);
/* splits: rows for each rank; NULL: count / size for each. recv_counts: NULL, or room for the rows from each. */
HPCCOLL_API int hpccoll_alltoall(const void *in, int64_t count, const int64_t *splits, hpccoll_dtype dtype, void *out,
                                 int64_t out_count, int64_t *recv_counts, const hpccoll_args *args,
                                 hpccoll_world *world);
HPCCOLL_API int hpccoll_barrier(const hpccoll_args *args, hpccoll_world *world);
/* This rank has no more collectives: takes part in those of the others with neutral elements until all have joined.
 * *last: NULL, or the rank that joined last. */
HPCCOLL_API int hpccoll_join(int *last, hpccoll_world *world);
/* `operation`: HPCCOLL_ALLREDUCE, REDUCE, SCAN or EXSCAN; `root` counts for a reduce only. */
HPCCOLL_API int hpccoll_group(hpccoll_operation operation, const hpccoll_array *arrays, int n, hpccoll_reduction op,
                              int root, const hpccoll_args *args, hpccoll_world *world);
/* end of generated */

/* The number of rows in rank r's share of `rows` among `size` ranks, and its first row. The first rows % size ranks
 * have one row more. */
static inline int64_t hpccoll_share(int64_t rows, int size, int r) {
    return rows / size + (r < rows % size);
}
static inline int64_t hpccoll_share_begin(int64_t rows, int size, int r) {
    return r * (rows / size) + (r < rows % size ? r : rows % size);
}

/* ---- user-defined reductions --------------------------------------------------------------------------------------
 *
 * They may be the `op` of an allreduce, reduce, reducescatter, scan or exscan, in the blocking, the asynchronous and
 * the persistent form, but not of a group, and without factors and compression. A call moves all ranks' arrays to each
 * rank, and each rank combines them in the order of the ranks, so that all have the same bits. A blocking allreduce or
 * reduce of 64 KiB and more divides the work instead: all ranks wait in such a call, or none of them does. A plan holds
 * memory for all arrays.
 *
 * HPCCOLL_MINLOC and HPCCOLL_MAXLOC find the smallest and the largest value and its index. Their elements are pairs of
 * one type, value and index, as in MPI_2INT and MPI_2DOUBLE_PRECISION, and `count` counts both. The lowest index of
 * equal values wins; if there is a NaN, it is the result. The neutral pair of HPCCOLL_MINLOC has the largest value and
 * index. */

/* Combines each element of `in` with that of `inout`, into `inout`; `in` comes from lower ranks. It must be
 * associative, need not be commutative, and the thread that waits for the result calls it. As in MPI, a call
 * may have only a part of the arrays: no element may depend on elements of other blocks, and the library does not
 * check that. */
typedef void hpccoll_function(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context);
/* Such a function calls it before it returns: its call, or wait, is HPCCOLL_UNSUPPORTED on this rank, with this text,
 * and leaves the result unchanged. Ranks that wait for the share of this rank get HPCCOLL_MISMATCH. */
HPCCOLL_API void hpccoll_op_fail(const char *why);
/* Makes a reduction. `block`: the function gets multiples of this number of elements (1: any number). A structure is
 * passed as bytes, HPCCOLL_UINT8, with its size as block. 0: the function gets whole arrays, also in a reducescatter,
 * and the work is not divided. `name`: for errors, equal on all ranks. */
HPCCOLL_API int hpccoll_op_create(hpccoll_function *function, void *context, int64_t block, const char *name,
                                  hpccoll_reduction *op);
/* Frees a reduction: new calls must not use it; calls in flight and plans go on. Sets *op to HPCCOLL_OP_NULL. */
HPCCOLL_API int hpccoll_op_free(hpccoll_reduction *op);

/* ---- asynchronous collectives: the caller waits for *request --------------------------------------------------- */

/* generated: asynchronous (make bindings) */
HPCCOLL_API int hpccoll_allreduce_async(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                        hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world,
                                        hpccoll_request **request);
HPCCOLL_API int hpccoll_reduce_async(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                     hpccoll_reduction op, int root, const hpccoll_args *args, hpccoll_world *world,
                                     hpccoll_request **request);
HPCCOLL_API int hpccoll_scan_async(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                                   const hpccoll_args *args, hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_exscan_async(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                     hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world,
                                     hpccoll_request **request);
HPCCOLL_API int hpccoll_broadcast_async(void *data, int64_t count, hpccoll_dtype dtype, int root,
                                        const hpccoll_args *args, hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_reducescatter_async(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                            hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world,
                                            hpccoll_request **request);
/* In these four, `out` may be HPCCOLL_ALLOCATE. */
HPCCOLL_API int hpccoll_allgather_async(const void *in, int64_t count, hpccoll_dtype dtype, void *out,
                                        int64_t out_count, int64_t *counts, const hpccoll_args *args,
                                        hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_gather_async(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count,
                                     int64_t *counts, int root, const hpccoll_args *args, hpccoll_world *world,
                                     hpccoll_request **request);
HPCCOLL_API int hpccoll_scatter_async(const void *in, int64_t in_count, const int64_t *splits, hpccoll_dtype dtype,
                                      void *out, int64_t out_count, int root, const hpccoll_args *args,
                                      hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_alltoall_async(const void *in, int64_t count, const int64_t *splits, hpccoll_dtype dtype,
                                       void *out, int64_t out_count, int64_t *recv_counts, const hpccoll_args *args,
                                       hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_barrier_async(const hpccoll_args *args, hpccoll_world *world, hpccoll_request **request);
HPCCOLL_API int hpccoll_group_async(hpccoll_operation operation, const hpccoll_array *arrays, int n,
                                    hpccoll_reduction op, int root, const hpccoll_args *args, hpccoll_world *world,
                                    hpccoll_request **request);
/* end of generated */

/* ---- point-to-point messages ----------------------------------------------------------------------------------- */

#define HPCCOLL_ANY_SOURCE (-1)
#define HPCCOLL_ANY_TAG (-1)
#define HPCCOLL_PROC_NULL (-2) /* a dest or a source that is nobody, as beyond the border of a grid */
/* generated: messages (make bindings) */
/* Messages between two ranks with one tag arrive in order. A message may have fewer elements than its receive. A
 * message to or from HPCCOLL_PROC_NULL moves nothing. */
HPCCOLL_API int hpccoll_send(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag,
                             hpccoll_world *world);
/* Takes a message from the rank `source` with the tag `tag`, or from any rank, with any tag.
 * *from: NULL, or the rank that has sent it; *received: NULL, or how many elements came. */
HPCCOLL_API int hpccoll_recv(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                             int64_t *received, hpccoll_world *world);
/* Sends `in` and receives into `out` at once, so that rings and shifts of any length cannot deadlock. The two share no
 * memory, unless `dest` or `source` is HPCCOLL_PROC_NULL. */
HPCCOLL_API int hpccoll_sendrecv(const void *in, int64_t count, hpccoll_dtype dtype, int dest, int sendtag, void *out,
                                 int64_t out_count, int source, int recvtag, int *from, int64_t *received,
                                 hpccoll_world *world);
/* Waits for a message that no receive has taken, and describes it; each pointer may be NULL. The message stays: the
 * next receive that matches takes it. */
HPCCOLL_API int hpccoll_probe(int source, int tag, int *from, int *found_tag, int64_t *bytes, hpccoll_world *world);
/* The same without a wait. *there: 0, and nothing else is written, if no such message has come. One that was sent is
 * there after some calls at the latest. */
HPCCOLL_API int hpccoll_iprobe(int source, int tag, int *there, int *from, int *found_tag, int64_t *bytes,
                               hpccoll_world *world);
HPCCOLL_API int hpccoll_send_async(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag,
                                   hpccoll_world *world, hpccoll_request **request);
/* *from and *received are written when it is waited for. */
HPCCOLL_API int hpccoll_recv_async(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                                   int64_t *received, hpccoll_world *world, hpccoll_request **request);
/* end of generated */

/* ---- plans: persistent operations --------------------------------------------------------------------------------
 *
 * A function with _init agrees on an operation with all ranks, once, and makes a plan of it, with the semantics of
 * MPI's persistent operations (MPI 4.0, sections 3.9 and 6.13). A start uses the arrays passed to _init, and sends no
 * control message. All ranks make the plans of collectives in the same order, and start each plan equally often, in any
 * order with other plans and calls; a plan of a message concerns only its rank. A start without its partners is
 * reported like any other long wait. args.name is not used. Only one thread at a time may use a plan. */

typedef struct hpccoll_plan hpccoll_plan;

/* generated: plans (make bindings) */
HPCCOLL_API int hpccoll_allreduce_init(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                       hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world,
                                       hpccoll_plan **plan);
HPCCOLL_API int hpccoll_reduce_init(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                                    int root, const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_scan_init(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                                  const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_exscan_init(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op,
                                    const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_broadcast_init(void *data, int64_t count, hpccoll_dtype dtype, int root,
                                       const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_reducescatter_init(const void *in, void *out, int64_t count, hpccoll_dtype dtype,
                                           hpccoll_reduction op, const hpccoll_args *args, hpccoll_world *world,
                                           hpccoll_plan **plan);
/* In these four, counts and recv_counts are written here; they and splits hold for every start. */
HPCCOLL_API int hpccoll_allgather_init(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count,
                                       int64_t *counts, const hpccoll_args *args, hpccoll_world *world,
                                       hpccoll_plan **plan);
HPCCOLL_API int hpccoll_gather_init(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count,
                                    int64_t *counts, int root, const hpccoll_args *args, hpccoll_world *world,
                                    hpccoll_plan **plan);
HPCCOLL_API int hpccoll_scatter_init(const void *in, int64_t in_count, const int64_t *splits, hpccoll_dtype dtype,
                                     void *out, int64_t out_count, int root, const hpccoll_args *args,
                                     hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_alltoall_init(const void *in, int64_t count, const int64_t *splits, hpccoll_dtype dtype,
                                      void *out, int64_t out_count, int64_t *recv_counts, const hpccoll_args *args,
                                      hpccoll_world *world, hpccoll_plan **plan);
HPCCOLL_API int hpccoll_barrier_init(const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan);
/* `operation`: HPCCOLL_ALLREDUCE or REDUCE; the arrays may be of several dtypes. */
HPCCOLL_API int hpccoll_group_init(hpccoll_operation operation, const hpccoll_array *arrays, int n,
                                   hpccoll_reduction op, int root, const hpccoll_args *args, hpccoll_world *world,
                                   hpccoll_plan **plan);
HPCCOLL_API int hpccoll_send_init(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag,
                                  hpccoll_world *world, hpccoll_plan **plan);
/* *from and *received (or NULL) are written at the end of each start. */
HPCCOLL_API int hpccoll_recv_init(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                                  int64_t *received, hpccoll_world *world, hpccoll_plan **plan);
/* What differs between the ranks is one error on all. Between start and wait the sides may be read. With `corners` the
 * dimensions are exchanged one after the other: all but the first begin in the wait, or in hpccoll_plan_test(). */
HPCCOLL_API int hpccoll_halo_exchange_init(void *array, hpccoll_dtype dtype, int ndims, const int64_t *shape,
                                           const int64_t *strides, const int *width, int corners, hpccoll_world *world,
                                           hpccoll_plan **plan);
/* end of generated */
/* Makes one plan of several, which the list owns: plans[i] is NULL afterwards. A start starts them in this order. This
 * needs no other rank. After an error the caller still owns all of them. */
HPCCOLL_API int hpccoll_plan_list(int n, hpccoll_plan *plans[], hpccoll_plan **list);

/* Starts the operation on the present values of the arrays. The program must not use the arrays until it is done, and a
 * started plan that shares memory with this one, where one of the two writes it, is an error. */
HPCCOLL_API int hpccoll_start(hpccoll_plan *plan);
HPCCOLL_API int hpccoll_startall(int n, hpccoll_plan *const plans[]);
/* Blocks until the start is done; HPCCOLL_OK at once if nothing was started. Then the plan may be started again. */
HPCCOLL_API int hpccoll_plan_wait(hpccoll_plan *plan);
/* Waits for all plans; returns the first error in their order. */
HPCCOLL_API int hpccoll_plan_waitall(int n, hpccoll_plan *const plans[]);
/* Never blocks. *done 1: the start is done, and it returns the status of hpccoll_plan_wait(). */
HPCCOLL_API int hpccoll_plan_test(hpccoll_plan *plan, int *done);
/* Frees this rank's resources of the plan, and sets *plan to NULL. Refused while its last start is in flight. NULL is
 * allowed. Other plans end with their World; free them afterwards in the same way. */
HPCCOLL_API int hpccoll_plan_free(hpccoll_plan **plan);

/* ---- for bindings of other languages --------------------------------------------------------------------------- */

/* Refuses a call on this rank for the reason `why`, before its arguments can be given to the library. The other ranks
 * get an error, as of every call without a name that one rank refuses. Returns HPCCOLL_INVALID. */
HPCCOLL_API int hpccoll_refuse(hpccoll_operation operation, const char *why, const hpccoll_args *args,
                               hpccoll_world *world);
/* The same for a call that makes a plan. */
HPCCOLL_API int hpccoll_refuse_init(hpccoll_operation operation, const char *why, hpccoll_world *world);

#ifdef __cplusplus
}
#endif
#endif

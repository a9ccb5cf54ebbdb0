/* SPDX-License-Identifier: Apache-2.0
 *
 * hpccoll.h - collective operations for the ranks of a job, from C, C++ and (by the module hpccoll) Fortran.
 *
 * A World is the ranks that act together. It is made of an MPI communicator, or of this process alone; the library is
 * linked with no MPI, and uses the one that the program is linked with. All ranks call a collective; calls without a
 * name match by their order in the program, as in MPI, named ones by their name, in any order on any rank.
 *
 * Every function returns HPCCOLL_OK (0) or a negative status, unless it says otherwise. After an error,
 * hpccoll_last_error() names the thing, the ranks and the values. An error that concerns all ranks is the same on all
 * of them, and touches no array.
 *
 * Any thread may call any function. Several threads that have calls in flight at once must name them.
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

/* ---- codes: the same numbers as in ext/core/hc.h, which is checked when the library is built ------------------- */

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

/* A status in one sentence. */
HPCCOLL_API const char *hpccoll_strerror(int status);
/* What was wrong in the last call of this thread that failed; "" if none has. Valid until the next that fails. */
HPCCOLL_API const char *hpccoll_last_error(void);
/* The version of the library, as HPCCOLL_VERSION is that of the header. */
HPCCOLL_API const char *hpccoll_version(void);

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

typedef struct hpccoll_world hpccoll_world;

/* Makes a World of the ranks of an MPI communicator; all of them call it. The communicator stays the caller's, and may
 * be freed. MPI must be initialised; with MPI_THREAD_MULTIPLE a background thread helps between nodes.
 *
 * `options`: NULL, or knobs as "stall_limit=60 nodes=2", which take precedence over variables as HPCCOLL_STALL_LIMIT.
 * Ranks that do not come within the knob start_timeout are named in an error (HPCCOLL_TRANSPORT). A World that still
 * lives in MPI_Finalize is freed there. */
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
/* The same by address and size of the communicator. */
HPCCOLL_API int hpccoll_world_from_comm(const void *comm, size_t comm_bytes, const char *options,
                                        hpccoll_world **world);
/* The same for a communicator of Fortran: its integer, which is MPI_VAL of a type(MPI_Comm). */
HPCCOLL_API int hpccoll_world_from_fortran(int comm, const char *options, hpccoll_world **world);
/* A World of this process alone, without MPI. */
HPCCOLL_API int hpccoll_world_alone(const char *options, hpccoll_world **world);
/* The World that the Python part of this program has made: `capsule_pointer` is the pointer in the capsule that
 * hpccoll.capsule() gives. Python frees it; freeing this one only ends its use here. */
HPCCOLL_API int hpccoll_world_from_python(void *capsule_pointer, hpccoll_world **world);
/* Ends the World on this rank: waits for the other ranks for the knob stop_timeout at most, ends all that is in flight,
 * and sets *world to NULL. Process sets made from it end with it. NULL is allowed. */
HPCCOLL_API int hpccoll_world_free(hpccoll_world **world);

HPCCOLL_API int hpccoll_rank(const hpccoll_world *world); /* or a status, as the next three */
HPCCOLL_API int hpccoll_size(const hpccoll_world *world);
HPCCOLL_API int hpccoll_local_rank(const hpccoll_world *world); /* among the ranks of its node */
HPCCOLL_API int hpccoll_local_size(const hpccoll_world *world);
HPCCOLL_API int hpccoll_node_of(const hpccoll_world *world, int rank); /* number of the node of a rank, or a status */

/* A World of some ranks of this one, in this order; all ranks of this one call it with the same ranks. *subset is NULL
 * on the ranks that are not in it. */
HPCCOLL_API int hpccoll_subset(hpccoll_world *world, const int *ranks, int n, hpccoll_world **subset);
/* A World per color, ordered by (key, rank); HPCCOLL_UNDEFINED: this rank gets none (NULL). All ranks call it. */
#define HPCCOLL_UNDEFINED (-32766)
HPCCOLL_API int hpccoll_split(hpccoll_world *world, int color, int key, hpccoll_world **part);

/* A counter of this rank by its name ("requests", "net_sent_bytes", ...), the names of World.stats() in Python. */
HPCCOLL_API int hpccoll_stat(hpccoll_world *world, const char *name, uint64_t *value);
/* Name number `i` of them; NULL behind the last. */
HPCCOLL_API const char *hpccoll_stat_name(int i);

/* Moves what can be moved, without blocking: for programs whose World has no background thread. */
HPCCOLL_API int hpccoll_progress(hpccoll_world *world);

/* ---- arguments that every call may have ------------------------------------------------------------------------ */

typedef struct hpccoll_args {
    const char *name;           /* NULL: the call matches by its order in the program */
    double prescale, postscale; /* factors of a SUM or AVERAGE of floats */
    hpccoll_dtype compression;  /* HPCCOLL_FLOAT16 or HPCCOLL_BFLOAT16: the type between nodes of float32 and float64;
                                   HPCCOLL_NO_COMPRESSION */
    int64_t row;                /* elements in a row: allgather, alltoall, gather, scatter and reducescatter count, cut
                                   and concatenate whole rows */
} hpccoll_args;
/* hpccoll_args args = HPCCOLL_ARGS; a call's NULL stands for the same. */
#ifdef __cplusplus
#define HPCCOLL_ARGS {nullptr, 1.0, 1.0, HPCCOLL_NO_COMPRESSION, 1}
#else
#define HPCCOLL_ARGS {.prescale = 1.0, .postscale = 1.0, .compression = HPCCOLL_NO_COMPRESSION, .row = 1}
#endif
/* As `in`: the input is in `out`. */
#define HPCCOLL_IN_PLACE ((const void *)-1)

/* ---- requests -------------------------------------------------------------------------------------------------- */

/* An asynchronous call in flight. Until it is done its arrays belong to the library. */
typedef struct hpccoll_request hpccoll_request;

/* Blocks until the call is done; returns what the blocking form returns, frees the request, sets it to NULL. A request
 * that is NULL is done. */
HPCCOLL_API int hpccoll_wait(hpccoll_request **request);
/* All of them; the first status that is an error, in their order. */
HPCCOLL_API int hpccoll_waitall(int n, hpccoll_request *requests[]);
/* Never blocks. *done 1: the request was freed, and the result is what hpccoll_wait() would return. */
HPCCOLL_API int hpccoll_test(hpccoll_request **request, int *done);
/* The same, after `seconds` at most. */
HPCCOLL_API int hpccoll_wait_for(hpccoll_request **request, double seconds, int *done);
/* As hpccoll_wait(), for a call whose `out` was NULL because the size of its result was not known: *data is new memory
 * with *count elements, to be given to hpccoll_release(). */
HPCCOLL_API int hpccoll_wait_result(hpccoll_request **request, void **data, int64_t *count);
HPCCOLL_API void hpccoll_release(void *data);

/* ---- collectives -------------------------------------------------------------------------------------------------
 *
 * `count` is in elements of `dtype`. `in` and `out` are contiguous and do not overlap; where a result has the
 * size of the input, they may be the same memory. */

/* The arrays of a group: agreed, fused and completed together. Each `out` lies apart from the other arrays. */
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

/* Rows of rank r's share of `rows` among `size` ranks, and where it begins: the first rows % size have one more. */
static inline int64_t hpccoll_share(int64_t rows, int size, int r) {
    return rows / size + (r < rows % size);
}
static inline int64_t hpccoll_share_begin(int64_t rows, int size, int r) {
    return r * (rows / size) + (r < rows % size ? r : rows % size);
}

/* ---- reductions of the program's own ------------------------------------------------------------------------------
 *
 * They are the `op` of an allreduce, reduce, reducescatter, scan or exscan, in the blocking, the asynchronous and the
 * persistent form, but not of a group, and without factors and compression. The ranks' arrays are gathered, each rank
 * combines them in the order of the ranks, and all have the same bits. So a call moves all ranks' arrays to each rank;
 * a blocking allreduce or reduce of 64 KiB and more divides the work instead. A plan holds memory for all arrays.
 *
 * HPCCOLL_MINLOC and HPCCOLL_MAXLOC find the least and the largest value and where it is. Their elements are pairs of
 * one type, value and index, as MPI_2INT and MPI_2DOUBLE_PRECISION are, and `count` counts both. The lowest index
 * of equal values is the result, or a NaN. So the neutral pair of HPCCOLL_MINLOC has the largest value and index. */

/* Leaves each element of `in` combined with that of `inout` in `inout`; `in` comes from lower ranks. It is associative,
 * need not be commutative, and is called by the thread that waits for the result. It is called with parts of arrays, as
 * MPI may call its functions: no element may depend on elements of other blocks, which nobody checks. */
typedef void hpccoll_function(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context);
/* Makes one. `block`: the function gets multiples of so many elements (1: any number); a structure is given as its
 * bytes, HPCCOLL_UINT8, with its size as block. A function that needs whole arrays has their `count` as block: the work
 * is not divided then, and a reducescatter is refused. `name`: for errors; all ranks give the same one. */
HPCCOLL_API int hpccoll_op_create(hpccoll_function *function, void *context, int64_t block, const char *name,
                                  hpccoll_reduction *op);
/* No call may be made with it any more; those in flight, and plans, go on. *op becomes HPCCOLL_OP_NULL. */
HPCCOLL_API int hpccoll_op_free(hpccoll_reduction *op);

/* ---- the same, asynchronous: *request is to be waited for ------------------------------------------------------ */

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
/* out NULL with out_count 0 in these four: the library allocates, see hpccoll_wait_result(). */
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
/* generated: messages (make bindings) */
/* Messages between two ranks with one tag arrive in order. A message may have fewer elements than its receive. */
HPCCOLL_API int hpccoll_send(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag,
                             hpccoll_world *world);
/* Takes a message from the rank `source` with the tag `tag`, or from any rank, with any tag.
 * *from: NULL, or the rank that has sent it; *received: NULL, or how many elements came. */
HPCCOLL_API int hpccoll_recv(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                             int64_t *received, hpccoll_world *world);
HPCCOLL_API int hpccoll_send_async(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag,
                                   hpccoll_world *world, hpccoll_request **request);
/* *from and *received are written when it is waited for. */
HPCCOLL_API int hpccoll_recv_async(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                                   int64_t *received, hpccoll_world *world, hpccoll_request **request);
/* end of generated */

/* ---- plans: persistent operations --------------------------------------------------------------------------------
 *
 * A function with _init agrees on an operation with all ranks, once, and makes a plan of it, with the semantics of
 * MPI's persistent operations (MPI 4.0, sections 3.9 and 6.13). A start reads and writes the arrays given there, and
 * sends no control message. All ranks make the plans of collectives in the same order, and start each of them equally
 * often, in any order with other plans and calls; plans of messages concern one rank alone. A start without its
 * partners is reported as any other long wait. args.name is not used. One thread at a time uses a plan. */

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
/* end of generated */
/* One plan of several, which it takes over: plans[i] is NULL afterwards. They start in this order, and nothing is
 * agreed. After an error all of them are the caller's still. */
HPCCOLL_API int hpccoll_plan_list(int n, hpccoll_plan *plans[], hpccoll_plan **list);

/* Begins the operation on the values that the arrays have now. Until it is over they belong to the library. */
HPCCOLL_API int hpccoll_start(hpccoll_plan *plan);
HPCCOLL_API int hpccoll_startall(int n, hpccoll_plan *const plans[]);
/* Blocks until the start is over; HPCCOLL_OK at once where nothing was started. The plan may then be started again. */
HPCCOLL_API int hpccoll_plan_wait(hpccoll_plan *plan);
/* All of them; the first status that is an error, in their order. */
HPCCOLL_API int hpccoll_plan_waitall(int n, hpccoll_plan *const plans[]);
/* Never blocks. *done 1: the start is over, and the result is what hpccoll_plan_wait() would return. */
HPCCOLL_API int hpccoll_plan_test(hpccoll_plan *plan, int *done);
/* Gives back what the plan holds, on this rank, and sets *plan to NULL. Refused until its last start is over, and was
 * waited for. NULL is allowed. Plans that are left end with their World, and are then freed in the same way. */
HPCCOLL_API int hpccoll_plan_free(hpccoll_plan **plan);

#ifdef __cplusplus
}
#endif
#endif

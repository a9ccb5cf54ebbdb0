/* SPDX-License-Identifier: Apache-2.0
 *
 * wrong.c - wrong calls of the C interface: each is one clear error, the same on all ranks where all take part, and
 * the World goes on.
 */
#include "ranks.h"

#define FINE(call) EXPECT(call, HPCCOLL_OK, "")

/* Counts whose bytes, or whose sum, would not fit into 64 bits: as bytes, 2 to the 61st of float64 are 0. */
static void too_large(hpccoll_world *world) {
    const int64_t large = INT64_C(1) << 61;
    double x[8] = {0}, y[8] = {0};
    int64_t sums_to_8[8] = {INT64_MAX, INT64_MAX, 10};
    EXPECT(hpccoll_allreduce(x, y, large, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_allgather(x, 1, HPCCOLL_FLOAT64, y, large, NULL, NULL, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_gather(x, 1, HPCCOLL_FLOAT64, y, large, NULL, 0, NULL, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_scatter(x, 8, NULL, HPCCOLL_FLOAT64, y, large, 0, NULL, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_alltoall(x, 8, NULL, HPCCOLL_FLOAT64, y, large, NULL, NULL, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_alltoall(x, 8, sums_to_8, HPCCOLL_FLOAT64, y, 8, NULL, NULL, world), HPCCOLL_INVALID,
           "sum of splits is more than");
    EXPECT(hpccoll_send(x, large, HPCCOLL_FLOAT64, 0, 0, world), HPCCOLL_INVALID, "too large");
    EXPECT(hpccoll_recv(y, large, HPCCOLL_FLOAT64, 0, 0, NULL, NULL, world), HPCCOLL_INVALID, "too large");
}

/* Numbers of requests and plans, and arrays of them. */
static void wrong_lists(void) {
    EXPECT(hpccoll_waitall(-1, NULL), HPCCOLL_INVALID, "waitall: n is -1");
    EXPECT(hpccoll_waitall(1, NULL), HPCCOLL_INVALID, "waitall: the array of 1 is NULL");
    EXPECT(hpccoll_startall(-1, NULL), HPCCOLL_INVALID, "startall: n is -1");
    EXPECT(hpccoll_startall(1, NULL), HPCCOLL_INVALID, "startall: the array of 1 is NULL");
    EXPECT(hpccoll_plan_waitall(-1, NULL), HPCCOLL_INVALID, "plan_waitall: n is -1");
    EXPECT(hpccoll_plan_waitall(1, NULL), HPCCOLL_INVALID, "plan_waitall: the array of 1 is NULL");
    FINE(hpccoll_waitall(0, NULL));
    FINE(hpccoll_startall(0, NULL));
    FINE(hpccoll_plan_waitall(0, NULL));
}

static void wrong_arguments(hpccoll_world *world) {
    double x[8] = {0}, y[8];
    hpccoll_args args = HPCCOLL_ARGS;
    hpccoll_request *request = NULL;
    EXPECT(hpccoll_allreduce(NULL, x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "in is NULL");
    EXPECT(hpccoll_allreduce(x, NULL, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "out is NULL");
    EXPECT(hpccoll_allreduce(x, x, -1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "negative");
    EXPECT(hpccoll_allreduce(x, x, 1, (hpccoll_dtype)77, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "dtype");
    EXPECT(hpccoll_allreduce(x, x, 1, HPCCOLL_FLOAT64, (hpccoll_reduction)77, NULL, world), HPCCOLL_INVALID, "op");
    EXPECT(hpccoll_allreduce(x, x, 1, HPCCOLL_FLOAT64, HPCCOLL_BAND, NULL, world), HPCCOLL_UNSUPPORTED, "BAND");
    EXPECT(hpccoll_scan(x, x, 1, HPCCOLL_FLOAT64, HPCCOLL_AVERAGE, NULL, world), HPCCOLL_UNSUPPORTED, "AVERAGE");
    EXPECT(hpccoll_exscan(x, x, 1, HPCCOLL_FLOAT64, HPCCOLL_AVERAGE, NULL, world), HPCCOLL_UNSUPPORTED, "AVERAGE");
    EXPECT(hpccoll_allreduce(x, x + 1, 4, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "overlaps");
    EXPECT(hpccoll_broadcast(x, 1, HPCCOLL_FLOAT64, size, NULL, world), HPCCOLL_INVALID, "root is");
    EXPECT(hpccoll_send(x, 1, HPCCOLL_FLOAT64, size, 0, world), HPCCOLL_INVALID, "dest is");
    EXPECT(hpccoll_send(x, 1, HPCCOLL_FLOAT64, 0, HPCCOLL_ANY_TAG, world), HPCCOLL_INVALID, "tag is -1");
    EXPECT(hpccoll_recv(x, 1, HPCCOLL_FLOAT64, 0, -2, NULL, NULL, world), HPCCOLL_INVALID, "HPCCOLL_ANY_TAG is -1");
    EXPECT(hpccoll_send(x, 1, HPCCOLL_FLOAT64, HPCCOLL_ANY_SOURCE, 0, world), HPCCOLL_INVALID,
           "HPCCOLL_PROC_NULL is -2");
    EXPECT(hpccoll_sendrecv(x, 2, HPCCOLL_FLOAT64, 0, 0, x + 1, 2, 0, 0, NULL, NULL, world), HPCCOLL_INVALID,
           "in and out of sendrecv share memory");
    EXPECT(hpccoll_sendrecv(x, 2, HPCCOLL_FLOAT64, 0, 0, y, 2, size, 0, NULL, NULL, world), HPCCOLL_INVALID,
           "source is");
    EXPECT(hpccoll_probe(-3, 0, NULL, NULL, NULL, world), HPCCOLL_INVALID, "source is -3");
    EXPECT(hpccoll_iprobe(0, 0, NULL, NULL, NULL, NULL, world), HPCCOLL_INVALID, "there is NULL");
    EXPECT(hpccoll_alltoall(x, 8, (int64_t[8]){9}, HPCCOLL_FLOAT64, y, 8, NULL, NULL, world), HPCCOLL_INVALID,
           "sum of splits is 9");
    EXPECT(hpccoll_allgather(x, 1, HPCCOLL_FLOAT64, x, size, NULL, NULL, world), HPCCOLL_INVALID, "overlaps");
    EXPECT(hpccoll_reduce(x, y, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, -1, NULL, world), HPCCOLL_INVALID, "root is -1");
    EXPECT(hpccoll_allreduce(x, (void *)-1, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID,
           "out is HPCCOLL_IN_PLACE");
    EXPECT(hpccoll_scatter(x, size, NULL, HPCCOLL_FLOAT64, (void *)-1, 1, 0, NULL, world), HPCCOLL_INVALID,
           "out is HPCCOLL_IN_PLACE");
    EXPECT(hpccoll_allgather(x, 1, HPCCOLL_FLOAT64, HPCCOLL_ALLOCATE, 0, NULL, NULL, world), HPCCOLL_INVALID,
           "out is HPCCOLL_ALLOCATE, which an asynchronous");
    EXPECT(hpccoll_allgather_async(x, 1, HPCCOLL_FLOAT64, HPCCOLL_ALLOCATE, 1, NULL, NULL, world, &request),
           HPCCOLL_INVALID, "with out_count 0");
    EXPECT(hpccoll_allreduce_async(x, HPCCOLL_ALLOCATE, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &request),
           HPCCOLL_INVALID, "out is HPCCOLL_ALLOCATE");
    wrong_lists();
    too_large(world);
    args.name = "unnamed call 3";
    EXPECT(hpccoll_barrier(&args, world), HPCCOLL_INVALID, "a name does not begin");
    args.name = "";
    EXPECT(hpccoll_barrier(&args, world), HPCCOLL_INVALID, "1 to 4096");
    EXPECT(hpccoll_allreduce_async(x, x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, NULL, &request), HPCCOLL_INVALID,
           "the World is NULL");
    EXPECT(hpccoll_stat(world, "no such", NULL), HPCCOLL_INVALID, "no counter");
}

/* In its three forms the call is refused, on this rank alone. */
#define OVERLAPS(name, words, ...)                                                                  \
    do {                                                                                            \
        EXPECT(hpccoll_##name(__VA_ARGS__, NULL, world), HPCCOLL_INVALID, words);                   \
        EXPECT(hpccoll_##name##_async(__VA_ARGS__, NULL, world, &request), HPCCOLL_INVALID, words); \
        EXPECT(hpccoll_##name##_init(__VA_ARGS__, NULL, world, &plan), HPCCOLL_INVALID, words);     \
        if (request || plan)                                                                        \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                           \
    } while (0)

#define SHARES "of the group shares memory"

static void wrong_group(hpccoll_world *world, const char *words, hpccoll_array one, hpccoll_array two) {
    hpccoll_request *request = NULL;
    hpccoll_plan *plan = NULL;
    const hpccoll_array group[] = {one, two}, turned[] = {two, one};
    OVERLAPS(group, words, HPCCOLL_ALLREDUCE, group, 2, HPCCOLL_SUM, 0);
    OVERLAPS(group, words, HPCCOLL_REDUCE, turned, 2, HPCCOLL_SUM, rank);
}

/* An out over a part of an input, or of another out. Each rank is the root, so that it has all of the arrays. */
static void wrong_overlaps(hpccoll_world *world) {
    const hpccoll_dtype f64 = HPCCOLL_FLOAT64;
    double m[96];
    hpccoll_request *request = NULL;
    hpccoll_plan *plan = NULL;
    for (int i = 0; i < 96; i++)
        m[i] = i;
    for (int shift = -7; shift < 8; shift += 2) {
        double *in = m + 32, *out = in + shift;
        OVERLAPS(allreduce, "overlaps", in, out, 8, f64, HPCCOLL_SUM);
        OVERLAPS(allreduce, "overlaps", in, out, 8, f64, HPCCOLL_MINLOC);
        OVERLAPS(reduce, "overlaps", in, out, 8, f64, HPCCOLL_SUM, rank);
        OVERLAPS(scan, "overlaps", in, out, 8, f64, HPCCOLL_SUM);
        OVERLAPS(exscan, "overlaps", in, out, 8, f64, HPCCOLL_SUM);
        OVERLAPS(exscan, "overlaps", in, out, 8, f64, HPCCOLL_MAXLOC);
        OVERLAPS(reducescatter, "overlaps", in, out, 8 * size, f64, HPCCOLL_SUM);
        OVERLAPS(allgather, "overlaps", in, 8, f64, out, 8 * size, NULL);
        OVERLAPS(gather, "overlaps", in, 8, f64, out, 8 * size, NULL, rank);
        OVERLAPS(alltoall, "overlaps", in, 8 * size, NULL, f64, out, 8 * size, NULL);
        OVERLAPS(scatter, "overlaps", in, 8 * size, NULL, f64, out, 8, rank);
        wrong_group(world, SHARES, (hpccoll_array){in, out, 8, f64}, (hpccoll_array){m, m, 8, f64});
        wrong_group(world, SHARES, (hpccoll_array){m, in, 8, f64}, (hpccoll_array){m, out, 8, f64});
        wrong_group(world, SHARES, (hpccoll_array){m, in, 8, f64}, (hpccoll_array){out, m + 64, 8, f64});
        wrong_group(world, SHARES, (hpccoll_array){HPCCOLL_IN_PLACE, in, 8, f64}, (hpccoll_array){out, out, 8, f64});
    }
    wrong_group(world, SHARES, (hpccoll_array){m, m, 8, f64}, (hpccoll_array){m, m, 8, f64});
    wrong_group(world, SHARES, (hpccoll_array){m, m, 8, f64},
                (hpccoll_array){(float *)m + 1, m + 64, 1, HPCCOLL_FLOAT32});
    for (int i = 0; i < 96; i++)
        if (m[i] != i)
            MPI_Abort(MPI_COMM_WORLD, 4);
    const hpccoll_array apart[] = {{m, m + 8, 8, f64}, {m, m + 16, 8, f64}, {m + 24, m + 24, 8, f64}};
    FINE(hpccoll_group(HPCCOLL_ALLREDUCE, apart, 3, HPCCOLL_SUM, 0, NULL, world));
    if (m[1] != 1 || m[9] != size || m[17] != size || m[25] != 25 * size)
        MPI_Abort(MPI_COMM_WORLD, 5);
}

#define REFUSED size == 2 ? "rank 1 has refused this call" : "rank 2 has refused this call"

/* The last rank refuses a call without a name, which the others make. They hear of it, and the next calls of all ranks
 * belong together: the sums are those of their values. */
static void wrong_alone(hpccoll_world *world, int64_t count) {
    const hpccoll_dtype f64 = HPCCOLL_FLOAT64;
    const int last = rank == size - 1;
    double *x = calloc((size_t)count, sizeof *x), *y = calloc((size_t)count, sizeof *y);
    hpccoll_array group[] = {{x, last ? NULL : y, count, f64}};
    hpccoll_request *request;
    hpccoll_plan *plan;
    const int status = last ? HPCCOLL_INVALID : HPCCOLL_MISMATCH;
    for (int form = 0; form < 6; form++) {
        const char *words = last ? "out is NULL" : REFUSED;
        double *out = last ? NULL : y;
        if (form == 0)
            EXPECT(hpccoll_allreduce(x, out, count, f64, HPCCOLL_SUM, NULL, world), status, words);
        if (form == 1 && last)
            EXPECT(hpccoll_allreduce_async(x, out, count, f64, HPCCOLL_SUM, NULL, world, &request), status, words);
        if (form == 1 && !last) {
            FINE(hpccoll_allreduce_async(x, out, count, f64, HPCCOLL_SUM, NULL, world, &request));
            EXPECT(hpccoll_wait(&request), status, words);
        }
        if (form == 2)
            EXPECT(hpccoll_group(HPCCOLL_ALLREDUCE, group, 1, HPCCOLL_SUM, 0, NULL, world), status, words);
        if (form == 3)
            EXPECT(hpccoll_exscan(x, out, count, f64, HPCCOLL_MAXLOC, NULL, world), status, words);
        if (form == 4)
            EXPECT(hpccoll_alltoall(x, 0, NULL, f64, y, last ? -1 : 0, NULL, NULL, world), status,
                   last ? "out has a negative" : REFUSED);
        if (form == 5)
            EXPECT(hpccoll_allreduce_init(x, out, count, f64, HPCCOLL_SUM, NULL, world, &plan), status, words);
        for (int call = 0; call < 2; call++) {
            for (int64_t i = 0; i < count; i++)
                x[i] = (rank + 1) * (form + 2) + call;
            FINE(hpccoll_allreduce(x, y, count, f64, HPCCOLL_SUM, NULL, world));
            for (int64_t i = 0; i < count; i++)
                if (y[i] != size * (size + 1) / 2 * (form + 2) + size * call)
                    MPI_Abort(MPI_COMM_WORLD, 6);
        }
    }
    free(x);
    free(y);
}

/* Ranks that disagree get one error, which names them and what they say. */
static void wrong_together(hpccoll_world *world) {
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, all[64];
    EXPECT(hpccoll_allreduce(x, x, 1 + rank, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_MISMATCH, "rank");
    EXPECT(hpccoll_allreduce(x, x, 1, rank ? HPCCOLL_INT64 : HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world),
           HPCCOLL_MISMATCH, "int64");
    EXPECT(hpccoll_allgather(x, 2, HPCCOLL_FLOAT64, all, 2 * size + (rank == 1), NULL, NULL, world),
           HPCCOLL_RESULT_SIZE, "rank 1");
    double *place = rank == 1 ? NULL : all;
    int64_t room = rank == 1 ? 0 : size, each[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    EXPECT(hpccoll_allgather(x, 1, HPCCOLL_FLOAT64, place, room, NULL, NULL, world), HPCCOLL_RESULT_SIZE, "rank 1");
    EXPECT(hpccoll_gather(x, 1, HPCCOLL_FLOAT64, place, room, NULL, 1, NULL, world), HPCCOLL_RESULT_SIZE, "rank 1");
    EXPECT(hpccoll_alltoall(x, size, each, HPCCOLL_FLOAT64, place, room, NULL, NULL, world), HPCCOLL_RESULT_SIZE,
           "rank 1");
    EXPECT(hpccoll_scatter(x, size, NULL, HPCCOLL_FLOAT64, place, room > 0, 0, NULL, world), HPCCOLL_RESULT_SIZE,
           "rank 1");
    FINE(hpccoll_scatter(x, 1, NULL, HPCCOLL_FLOAT64, rank ? NULL : all, !rank, 0, NULL, world));
    hpccoll_request *request; /* the address of an empty array is no request for memory */
    FINE(hpccoll_allgather_async(x, 1, HPCCOLL_FLOAT64, place, room, NULL, NULL, world, &request));
    EXPECT(hpccoll_wait(&request), HPCCOLL_RESULT_SIZE, "rank 1");
    if (x[0] != 1 || x[7] != 8)
        MPI_Abort(MPI_COMM_WORLD, 2);
    FINE(hpccoll_barrier(NULL, world));
    hpccoll_world *none;
    EXPECT(hpccoll_subset(world, (int[]){0, rank}, 2, &none), HPCCOLL_MISMATCH, "at place 1 rank 0 says 0, rank 1");
    EXPECT(hpccoll_subset(world, (int[]){0, 0}, 2, &none), HPCCOLL_INVALID, "rank 0 is there twice");
    EXPECT(hpccoll_subset(world, (int[]){size}, 1, &none), HPCCOLL_INVALID, "no rank from 0");
    FINE(hpccoll_split(world, HPCCOLL_UNDEFINED, 0, &none));
    EXPECT(hpccoll_rank(none), HPCCOLL_INVALID, "not in it");
}

static void wrong_requests(hpccoll_world *world) {
    double x[2] = {1, 2};
    hpccoll_request *request, *copy, *second;
    hpccoll_args args = HPCCOLL_ARGS;
    args.name = "twice";
    FINE(hpccoll_allreduce_async(x, x, 2, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world, &request));
    args.name = "shares";
    EXPECT(hpccoll_allreduce_async(x, x, 2, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world, &second), HPCCOLL_INVALID,
           "shares memory with an array of allreduce 'twice'");
    copy = request;
    FINE(hpccoll_wait(&request));
    FINE(hpccoll_wait(&request));
    EXPECT(hpccoll_wait(&copy), HPCCOLL_INVALID, "waited for before");
    if (rank == 0) {
        EXPECT(hpccoll_recv_async(x, 1, HPCCOLL_FLOAT64, 1, 3, NULL, NULL, world, &request), HPCCOLL_OK, "");
        EXPECT(hpccoll_wait(&request), HPCCOLL_RESULT_SIZE, "a message of 16 bytes came for a receive of 8 bytes");
    } else if (rank == 1) {
        FINE(hpccoll_send(x, 2, HPCCOLL_FLOAT64, 0, 3, world));
    }
    FINE(hpccoll_barrier(NULL, world));
}

static void wrong_worlds(void) {
    hpccoll_world *world, *copy, *set;
    double x = 1;
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_NULL, NULL, &world), HPCCOLL_INVALID, "MPI_COMM_NULL");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, "no_such=1", &world), HPCCOLL_INVALID, "no_such=1 is no knob");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, "rails=-1", &world), HPCCOLL_INVALID, "rails=-1 is not 0 to");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, "algorithm=best", &world), HPCCOLL_INVALID, "ring");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, rank ? "verbose=0 rails=2" : "verbose=0 rails=1", &world),
           HPCCOLL_MISMATCH, "rails=1 on rank 0, rails=2 on rank 1");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0 nodes=99", &world), HPCCOLL_INVALID, "HPCCOLL_NODES=99");
    EXPECT(hpccoll_world_from_comm(&(char){0}, 1, NULL, &world), HPCCOLL_INVALID, "compiled for another MPI");
    FINE(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world));
    FINE(hpccoll_split(world, 0, 0, &set));
    copy = world;
    FINE(hpccoll_world_free(&world));
    FINE(hpccoll_world_free(&world)); /* NULL */
    EXPECT(hpccoll_barrier(NULL, set), HPCCOLL_SHUT_DOWN, "the World that it was made of was freed");
    FINE(hpccoll_world_free(&set)); /* it has ended with its World, and was not freed */
    CHECK(!set);
    EXPECT(hpccoll_world_free(&copy), HPCCOLL_SHUT_DOWN, "it was freed");
    EXPECT(hpccoll_allreduce(&x, &x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, copy), HPCCOLL_SHUT_DOWN, "it was freed");
}

/* A rank that does not come is named on all others, within the limit. */
static void wrong_start(void) {
    hpccoll_world *world;
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, rank == 1 ? "verbose=0 fanout=2" : "verbose=0", &world),
           HPCCOLL_MISMATCH, "settings differ between ranks: fanout=16 on rank 0, fanout=2 on rank 1");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, rank == 1 ? "verbose=0 rails=-1" : "verbose=0", &world),
           HPCCOLL_INVALID, "the World was not made: rank 1: rails=-1 is not 0 to");
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, rank == 1 ? "verbose=0 algorithm=best" : "verbose=0", &world),
           HPCCOLL_INVALID, "the World was not made: rank 1: algorithm=best is not one of");
    if (rank != size - 1)
        EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, "start_timeout=1 verbose=0", &world), HPCCOLL_TRANSPORT,
               size == 2 ? "no word from rank 1" : "no word from rank 2");
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    hpccoll_world *world, *set;
    double x = 1;
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, NULL, &world), HPCCOLL_INVALID, "MPI is not initialised");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wrong_worlds();
    FINE(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world));
    wrong_arguments(world);
    wrong_overlaps(world);
    wrong_together(world);
    wrong_alone(world, 2);
    wrong_alone(world, 20000);
    wrong_requests(world);
    FINE(hpccoll_split(world, 0, 0, &set));
    wrong_start();
    MPI_Finalize();
    EXPECT(hpccoll_allreduce(&x, &x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_SHUT_DOWN, "MPI_Finalize");
    EXPECT(hpccoll_barrier(NULL, set), HPCCOLL_SHUT_DOWN, "MPI_Finalize has ended it");
    FINE(hpccoll_world_free(&set));
    FINE(hpccoll_world_free(&world));
    EXPECT(hpccoll_world_from_mpi(MPI_COMM_WORLD, NULL, &world), HPCCOLL_INVALID, "finalized");
    if (rank == 0)
        printf("fine\n");
    return 0;
}

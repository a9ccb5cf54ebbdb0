/* SPDX-License-Identifier: Apache-2.0
 *
 * net_contract_mpi.c - the contract of hc_net, over MPI: mpirun -np RANKS net_contract_mpi [GIBIBYTES]
 *
 * With GIBIBYTES one message of that length goes from rank 0 to rank 1: lengths beyond int.
 */
#include "transport/net/mpi_net.h"
#include "transport/net/mpi_calls.h"
#include "net_contract.h"

#include <mpi.h>
#include <time.h>

/* The family that is found has the sizes, constants and functions of this MPI's own header. */
static void check_facts(const hc_mpi_family *mpi) {
#define SAME(what, header)                                                                              \
    CHECK(!strcmp(fact->name, what), "%s comes where %s should", fact->name, what);                     \
    CHECK(fact->value == (int64_t)(header), "%s: %s is %lld", mpi->name, what, (long long)fact->value); \
    fact++;
#define DECLARED(result, name, arguments)                                                                   \
    {                                                                                                       \
        result(*function) arguments = MPI_##name; /* a warning, and so an error, if the arguments differ */ \
        CHECK(function, "MPI_" #name);                                                                      \
    }
    const hc_mpi_fact *fact = mpi->facts();
    HC_MPI_FACTS(SAME)
    CHECK(!fact->name, "no more facts");
    HC_MPI_CALLS(DECLARED)
    CHECK(mpi->thread_level() >= 0, "a thread level");
}

static void check_large(hc_net *net, double gibibytes) {
    size_t n = (size_t)(gibibytes * 0x1p30) + 3;
    if (net->rank > 1)
        return;
    char *data = malloc(n);
    CHECK(data, "%zu bytes of memory", n);
    for (size_t i = 0; i < n; i += 4093)
        data[i] = (char)(net->rank == 0 ? (i >> 3) & 127 : 0);
    data[n - 1] = (char)(net->rank == 0 ? 77 : 0);
    size_t bytes = 0;
    hc_net_request *req = net->rank == 0 ? give(net, 1, 40, data, n) : ask(net, 0, 40, data, n);
    finish(net, &req, &bytes, NULL);
    CHECK(net->rank == 0 || bytes == n, "%zu bytes, not %zu", bytes, n);
    for (size_t i = 0; i < n - 1; i += 4093)
        CHECK(data[i] == (char)((i >> 3) & 127), "byte %zu", i);
    CHECK(data[n - 1] == 77, "the last byte");
    free(data);
}

/* MPICH ends the job itself when a request fails, whatever the communicator's error handler says; Open MPI says
 * nothing of a message to oneself that is too long. */
static int reports_errors(const hc_net *net) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    return net->size > 1 && strstr(text, "Open MPI");
}

static hc_net *make_net(const hc_mpi_family *mpi, int one_machine) {
    hc_net *net = NULL;
    MPI_Comm own;
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &own) == MPI_SUCCESS, "a communicator");
    CHECK(mpi->net_new(&own, one_machine, &net) == HC_OK, "net");
    return net;
}

/* A communicator that was split off has no attribute that says which tags it takes: MPI_COMM_WORLD has. */
static void check_tags(const hc_mpi_family *mpi) {
    hc_net *net = NULL;
    MPI_Comm split;
    int rank = 0, found = 0, *most = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &split);
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found) == MPI_SUCCESS && found, "the largest tag");
    CHECK(mpi->net_new(&split, 1, &net) == HC_OK, "net");
    CHECK(net->max_tag == *most, "a largest tag of %d and not %d", net->max_tag, *most);
    net->ops->free(net);
}

/* Rank 1 writes to memory of rank 0, which is in MPI by progress() alone. */
static void check_progress(const hc_mpi_family *mpi) {
    static volatile int written;
    int rank = 0, size = 0, one = 1;
    MPI_Win window;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win_create((void *)(uintptr_t)&written, sizeof written, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
        MPI_Win_unlock(0, window);
    }
    for (time_t limit = time(NULL) + 30; rank == 0 && size > 1 && !written; mpi->progress())
        CHECK(time(NULL) < limit, "progress() does not let another rank write to this one");
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    int level = 0;
    char why[256];
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    const hc_mpi_family *mpi = hc_mpi_load(NULL, why);
    CHECK(mpi, "%s", why);
    check_facts(mpi);
    hc_net *net = make_net(mpi, 1);
    check_net(net);
    if (reports_errors(net)) {
        check_too_long(net);
        CHECK(net->text && strstr(net->text, "TRUNCATE"), "MPI's own words: %s", net->text);
    }
    net->ops->free(net);
    check_tags(mpi);
    check_progress(mpi);

    net = make_net(mpi, 0);
    if (argc > 1)
        check_large(net, atof(argv[1]));
    hc_net_request *never = ask(net, HC_ANY_PEER, HC_TAG_CONTROL, &level, 4);
    CHECK(net->ops->test(net, &never, NULL, NULL) == HC_IDLE, "nothing was sent");
    net->ops->free(net); /* with a receive still open */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    printf("ok: %s\n", mpi->name);
    return 0;
}

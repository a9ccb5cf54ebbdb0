/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_communicators.h - communicators for a World without mpi4py; included once in each family's file, after mpi.c.
 */
#pragma once

#include <time.h>

/* ---- a net over the program's own communicator ---------------------------------------------------------- */

static void give_back_communicator(hc_net *base) {
    mpi_net *net = (mpi_net *)base;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Comm_set_errhandler(net->comm, net->before);
    net->failed = 1; /* destroy() then neither empties nor frees the communicator */
    destroy(base);
}

static const struct hc_net_ops borrowed_ops = {.name = "mpi",
                                               .isend = isend,
                                               .irecv = irecv,
                                               .test = test,
                                               .cancel = cancel,
                                               .surround = mpi_surround,
                                               .free = give_back_communicator};

static int net_borrow(const void *of, hc_net **out) {
    MPI_Comm comm;
    MPI_Errhandler before;
    memcpy(&comm, of, sizeof comm);
    if (MPI_Comm_get_errhandler(comm, &before) != MPI_SUCCESS)
        return HC_TRANSPORT;
    int status = net_new(of, 1, out);
    if (status < 0)
        return status;
    ((mpi_net *)*out)->before = before;
    (*out)->ops = &borrowed_ops;
    return HC_OK;
}

/* ---- communicators --------------------------------------------------------------------------------------- */

static const char *comm_refuse(const void *of) {
    int started = 0, ended = 0, inter = 0;
    MPI_Comm comm;
    if (MPI_Initialized(&started) != MPI_SUCCESS || !started)
        return "MPI is not initialised: call MPI_Init first";
    if (MPI_Finalized(&ended) != MPI_SUCCESS || ended)
        return "MPI is finalized: a World of MPI ranks lives between MPI_Init and MPI_Finalize";
    if (!of)
        return NULL;
    memcpy(&comm, of, sizeof comm);
    if (comm == MPI_COMM_NULL)
        return "the communicator is MPI_COMM_NULL";
    if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter)
        return "the communicator is no intracommunicator";
    return NULL;
}

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* After a timeout MPI may still write to the request and the communicator, so their memory is never freed. */
static int comm_duplicate(const void *of, uint64_t ns, void *made) {
    struct duplicate {
        MPI_Comm comm;
        MPI_Request request;
    } *one = malloc(sizeof *one);
    MPI_Comm comm;
    int done = 0;
    uint64_t limit = clock_ns() + ns;
    if (!one)
        return HC_NO_MEMORY;
    memcpy(&comm, of, sizeof comm);
    if (MPI_Comm_idup(comm, &one->comm, &one->request) != MPI_SUCCESS)
        return HC_TRANSPORT;
    while (!done && clock_ns() < limit) {
        if (MPI_Test(&one->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return HC_TRANSPORT;
        sched_yield();
    }
    if (!done)
        return HC_STALLED;
    memcpy(made, &one->comm, sizeof one->comm);
    free(one);
    return HC_OK;
}

static void comm_free(void *of) {
    MPI_Comm comm;
    memcpy(&comm, of, sizeof comm);
    MPI_Comm_free(&comm);
}

static int comm_of_fortran(int handle, hc_mpi_find find, void *made) {
#if FORTRAN_HAS_HANDLES_OF_C
    (void)find;
    memcpy(made, &handle, sizeof handle);
#else
    MPI_Comm comm, (*convert)(int);
    void *address = find("MPI_Comm_f2c");
    if (!address)
        return HC_UNSUPPORTED;
    memcpy(&convert, &address, sizeof address);
    comm = convert(handle);
    memcpy(made, &comm, sizeof comm);
#endif
    return HC_OK;
}

/* ---- the end of MPI ---------------------------------------------------------------------------------------- */

static void (*at_end)(void);

static int copy_nothing(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static int end_all(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    at_end();
    return MPI_SUCCESS;
}

/* MPI_Finalize first frees MPI_COMM_SELF, and so deletes its attributes (MPI 4.0, 11.2.4). */
static int at_finalize(void (*end)(void)) {
    int key = 0;
    if (at_end)
        return HC_OK;
    if (MPI_Comm_create_keyval(copy_nothing, end_all, &key, NULL) != MPI_SUCCESS ||
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) != MPI_SUCCESS)
        return HC_TRANSPORT;
    at_end = end;
    return HC_OK;
}

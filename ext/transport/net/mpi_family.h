/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_family.h - the functions that mpi_load.c needs of a family; included once in each family's file, after mpi.c.
 */
#pragma once

#include <pthread.h>

static const char *load(hc_mpi_find find) {
#define PLACE(result, name, arguments) {"MPI_" #name, (void *)&MPI_##name},
    const struct {
        const char *name;
        void *pointer;
    } calls[] = {HC_MPI_CALLS(PLACE)};
#undef PLACE
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = find(calls[i].name);
        if (!function)
            return calls[i].name;
        memcpy(calls[i].pointer, &function, sizeof function);
    }
    return FIND_HANDLES(find);
}

static const hc_mpi_fact *facts(void) {
#define FACT(name, value) {name, (int64_t)(value)},
    static hc_mpi_fact table[32];
    const hc_mpi_fact now[] = {HC_MPI_FACTS(FACT){NULL, 0}};
#undef FACT
    return memcpy(table, now, sizeof now);
}

static int version(char text[HC_MPI_VERSION_ROOM]) {
    int length = 0, code = MPI_Get_library_version(text, &length);
    text[code == MPI_SUCCESS ? length : 0] = 0;
    return code == MPI_SUCCESS ? HC_OK : HC_TRANSPORT;
}

static int thread_level(void) {
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int started = 0, given = -1, level = 3;
    if (MPI_Initialized(&started) != MPI_SUCCESS || !started || MPI_Query_thread(&given) != MPI_SUCCESS)
        return -1;
    while (level >= 0 && levels[level] != given)
        level--;
    return level;
}

/* ---- progress ---------------------------------------------------------------------------------------------- */

/* Every MPI library makes progress on all that the process has under way while it answers whether a request is over. In
 * a probe on MPI_COMM_SELF, MPICH makes none for the program's passive-target RMA. */
static MPI_Request never_over;
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static int query_nothing(void *extra, MPI_Status *status) {
    (void)extra, (void)status;
    return MPI_SUCCESS;
}

static int free_nothing(void *extra) {
    (void)extra;
    return MPI_SUCCESS;
}

static int cancel_nothing(void *extra, int complete) {
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

static void make_request(void) {
    if (MPI_Grequest_start(query_nothing, free_nothing, cancel_nothing, NULL, &never_over) != MPI_SUCCESS)
        never_over = MPI_REQUEST_NULL;
}

/* A program of MPI_THREAD_SERIALIZED may have a thread in MPI now, beside which no other one may call it. */
static void progress(void) {
    int ended = 1, is_main = 0, over, level = MPI_Finalized(&ended) == MPI_SUCCESS && !ended ? thread_level() : -1;
    if (level != HC_MPI_MULTIPLE && ((level != HC_MPI_SINGLE && level != HC_MPI_FUNNELED) ||
                                     MPI_Is_thread_main(&is_main) != MPI_SUCCESS || !is_main))
        return;
    pthread_once(&asked, make_request);
    MPI_Request_get_status(never_over, &over, MPI_STATUS_IGNORE);
}

const hc_mpi_family FAMILY = {.name = FAMILY_NAME,
                              .load = load,
                              .facts = facts,
                              .version = version,
                              .thread_level = thread_level,
                              .progress = progress,
                              .net_new = net_new,
                              .net_borrow = net_borrow,
                              .comm_refuse = comm_refuse,
                              .comm_duplicate = comm_duplicate,
                              .comm_free = comm_free,
                              .comm_of_fortran = comm_of_fortran,
                              .at_finalize = at_finalize};

/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_net.h - a net over an MPI communicator, whichever MPI the process has: what the boundary needs of it.
 *
 * No mpi.h is needed to build it. MPI libraries come in families that share sizes, constants and layouts: MPICH with
 * Intel MPI, Cray MPICH and MVAPICH2; Open MPI; and those that speak the ABI of MPI 5.0. mpi.c is compiled once per
 * family (mpi_mpich.c, mpi_openmpi.c, mpi_standard.c), and mpi_load.c finds out which of them the process needs.
 */
#ifndef HC_MPI_NET_H
#define HC_MPI_NET_H

#include "transport/net/net.h"

#define HC_MPI_VERSION_ROOM 8193 /* for the longest text of MPI_Get_library_version, and its end */

/* Where to look for a function or variable of MPI by its name; NULL if it is not there. */
typedef void *(*hc_mpi_find)(const char *name);

/* A size or a constant of a family, by the name that mpi4py has for it. */
typedef struct hc_mpi_fact {
    const char *name;
    int64_t value;
} hc_mpi_fact;

typedef struct hc_mpi_family {
    const char *name;
    /* Fills the family's table of functions; the name of what is missing, or NULL. */
    const char *(*load)(hc_mpi_find);
    /* Sizes and constants, the last with the name NULL; valid after load(). */
    const hc_mpi_fact *(*facts)(void);
    int (*version)(char text[HC_MPI_VERSION_ROOM]);
    /* What MPI_Init gave: 0 (single) to 3 (multiple), or -1 before it. */
    int (*thread_level)(void);
    /* Takes a communicator over, which nobody else may use, and lets it return errors; sends nothing. `comm`: the
     * address of an MPI_Comm. `one_machine`: all ranks can share memory, which decides how long messages are best; the
     * same on all ranks. MPI must be initialised; with MPI_THREAD_MULTIPLE any one thread at a time may use the net,
     * below that only the threads that MPI allows. */
    int (*net_new)(const void *comm, int one_machine, hc_net **);
    /* The same over a communicator that stays the program's and gets its error handler back: for the start. */
    int (*net_borrow)(const void *comm, hc_net **);
    /* Why a World cannot be made of this communicator (NULL: of any, now), or NULL. */
    const char *(*comm_refuse)(const void *comm);
    /* Another communicator of the same ranks, into `made`; all of them call it. STALLED: not within `ns`. */
    int (*comm_duplicate)(const void *comm, uint64_t ns, void *made);
    void (*comm_free)(void *comm);
    /* The communicator of a handle of Fortran, into `made`. */
    int (*comm_of_fortran)(int handle, hc_mpi_find, void *made);
    /* `end` is called at the beginning of MPI_Finalize; the first one counts. */
    int (*at_finalize)(void (*end)(void));
} hc_mpi_family;
#define HC_MPI_COMM_BYTES 8 /* of the largest communicator of a family */

extern const hc_mpi_family hc__mpi_mpich, hc__mpi_openmpi, hc__mpi_standard;

/* The family of the MPI library that a shared object, named by its file, was linked with (NULL: this program), loaded;
 * or NULL, and why. As for every symbol, what the whole process sees comes before what the object was linked with. */
const hc_mpi_family *hc_mpi_load(const char *object, char why[256]);

/* The address of MPI_Init in that library, after hc_mpi_load(). */
const void *hc_mpi_address(void);

/* A function of that library by its name, or NULL. */
void *hc_mpi_function(const char *name);

#endif

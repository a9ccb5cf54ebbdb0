/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_net.h - the interface of a net over an MPI communicator, for any MPI library.
 *
 * The build needs no mpi.h. MPI libraries form families with equal sizes, constants and layouts: MPICH with Intel MPI,
 * Cray MPICH and MVAPICH2; Open MPI; and libraries with the ABI of MPI 5.0. mpi.c is compiled once per family
 * (mpi_mpich.c, mpi_openmpi.c, mpi_standard.c), and mpi_load.c chooses one at run time.
 */
#pragma once

#include "transport/net/net.h"

#define HC_MPI_VERSION_ROOM 8193 /* for the longest text of MPI_Get_library_version, with its 0 */

/* Finds a function or variable of MPI by its name; NULL: it is not there. */
typedef void *(*hc_mpi_find)(const char *name);

enum hc_mpi_level { HC_MPI_SINGLE, HC_MPI_FUNNELED, HC_MPI_SERIALIZED, HC_MPI_MULTIPLE };

/* A size or a constant of a family, with its name in mpi4py. */
typedef struct hc_mpi_fact {
    const char *name;
    int64_t value;
} hc_mpi_fact;

typedef struct hc_mpi_family {
    const char *name;
    /* Fills the family's table of functions. NULL, or the name of a missing function. */
    const char *(*load)(hc_mpi_find);
    /* Sizes and constants, the last with the name NULL; valid after load(). */
    const hc_mpi_fact *(*facts)(void);
    int (*version)(char text[HC_MPI_VERSION_ROOM]);
    /* The thread level of MPI; -1 before MPI_Init. */
    int (*thread_level)(void);
    /* Makes MPI progress on what the program has under way, if this thread may call MPI now; else does nothing. */
    void (*progress)(void);
    /* Takes ownership of a communicator that no other code uses, and sets its error handler to return errors; sends
     * nothing. `comm`: the address of an MPI_Comm. `one_machine`: all ranks can share memory, which sets message_bytes;
     * the same on all ranks. MPI must be initialised. With MPI_THREAD_MULTIPLE any one thread at a time may use the
     * net, below that only the threads that MPI allows. */
    int (*net_new)(const void *comm, int one_machine, hc_net **);
    /* The same over a borrowed communicator, whose error handler is restored: for the start of a World. */
    int (*net_borrow)(const void *comm, hc_net **);
    /* The reason why this communicator (NULL: any, now) cannot make a World; or NULL. */
    const char *(*comm_refuse)(const void *comm);
    /* Duplicates a communicator into `made`; all its ranks call this. STALLED: it took longer than `ns`. */
    int (*comm_duplicate)(const void *comm, uint64_t ns, void *made);
    void (*comm_free)(void *comm);
    /* Converts a Fortran handle to a communicator in `made`. */
    int (*comm_of_fortran)(int handle, hc_mpi_find, void *made);
    /* Registers `end` for the beginning of MPI_Finalize; only the first call counts. */
    int (*at_finalize)(void (*end)(void));
} hc_mpi_family;
#define HC_MPI_COMM_BYTES 8 /* of the largest communicator of a family */

extern const hc_mpi_family hc__mpi_mpich, hc__mpi_openmpi, hc__mpi_standard;

/* Loads the family of the MPI library that a shared object, named by its file, was linked with (NULL: this program); or
 * NULL, and why. The global scope of the process comes before the object's libraries. */
const hc_mpi_family *hc_mpi_load(const char *object, char why[256]);

/* The address of MPI_Init in that library, after hc_mpi_load(). */
const void *hc_mpi_address(void);

/* A function of that library by its name, or NULL. */
void *hc_mpi_function(const char *name);

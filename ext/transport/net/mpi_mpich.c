/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_mpich.c - the net over MPI for MPICH 3.1 and later, Intel MPI, Cray MPICH, MVAPICH2: handles are numbers.
 *
 * These libraries agreed on one ABI in 2013 (MPICH ABI Compatibility Initiative). A test compares with mpi.h.
 */
#include <stdint.h>

typedef int MPI_Comm, MPI_Datatype, MPI_Errhandler, MPI_Message, MPI_Request;
typedef long MPI_Aint;
typedef long long MPI_Count;
typedef struct MPI_Status {
    int count_low, count_high_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;

#define MPI_BYTE ((MPI_Datatype)0x4c00010d)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x54000001)
#define MPI_COMM_NULL ((MPI_Comm)0x04000000)
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_COMM_SELF ((MPI_Comm)0x44000001)
#define MPI_REQUEST_NULL ((MPI_Request)0x2c000000)
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)
#define MPI_MAX_ERROR_STRING 1024 /* in MPICH 3; 512 in later versions */
enum {
    MPI_ANY_SOURCE = -2,
    MPI_UNDEFINED = -32766,
    MPI_TAG_UB = 0x64400001,
    MPI_SUCCESS = 0,
    MPI_ERR_IN_STATUS = 17,
    MPI_ERR_NO_MEM = 34,
    MPI_ERR_PROC_FAILED = 101, /* MPIX_ERR_PROC_FAILED */
    MPI_ERR_PROC_FAILED_PENDING = 102,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_FUNNELED = 1,
    MPI_THREAD_SERIALIZED = 2,
    MPI_THREAD_MULTIPLE = 3
};

#define FAMILY hc__mpi_mpich
#define FAMILY_NAME "MPICH"
#define POSTS_ANY_SOURCE 0
#define FORTRAN_HAS_HANDLES_OF_C 1
#define FIND_HANDLES(find) NULL /* handles are numbers */

#include "transport/net/mpi.c"
#include "transport/net/mpi_drain.h"
#include "transport/net/mpi_communicators.h"
#include "transport/net/mpi_family.h"

/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_standard.c - the net over MPI for libraries with the ABI of the MPI standard, version 5.0 (libmpi_abi.so).
 *
 * MPICH 5 and Intel MPI ship such a library beside their own; Open MPI 5 does not. A test compares with mpi.h.
 */
#include <stdint.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Request *MPI_Request;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, internal[5];
} MPI_Status;

#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_MAX_ERROR_STRING 512
enum {
    MPI_ANY_SOURCE = -1,
    MPI_UNDEFINED = -32766,
    MPI_TAG_UB = 501,
    MPI_SUCCESS = 0,
    MPI_ERR_IN_STATUS = 19,
    MPI_ERR_NO_MEM = 39,
    MPI_ERR_PROC_FAILED = -1, /* these are not in this ABI yet, so no error has them */
    MPI_ERR_PROC_FAILED_PENDING = -2,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_FUNNELED = 1024,
    MPI_THREAD_SERIALIZED = 2048,
    MPI_THREAD_MULTIPLE = 4096
};

#define FAMILY hc__mpi_standard
#define FAMILY_NAME "the ABI of MPI 5.0"
#define POSTS_ANY_SOURCE 0
#define FORTRAN_HAS_HANDLES_OF_C 0
#define FIND_HANDLES(find) NULL /* handles are numbers */

#include "transport/net/mpi.c"
#include "transport/net/mpi_drain.h"
#include "transport/net/mpi_communicators.h"
#include "transport/net/mpi_family.h"

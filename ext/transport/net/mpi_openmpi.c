/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_openmpi.c - the net over MPI for Open MPI 4 and 5 and libraries based on them: handles are addresses of
 * variables.
 *
 * libmpi.so.40 has been compatible since Open MPI 3. A test compares with mpi.h.
 */
#include <stddef.h>

#include "transport/net/mpi_net.h"

typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_message_t *MPI_Message;
typedef struct ompi_request_t *MPI_Request;
typedef ptrdiff_t MPI_Aint;
typedef long long MPI_Count;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, cancelled;
    size_t count;
} MPI_Status;

static MPI_Comm comm_null, comm_self, comm_world;
static MPI_Datatype byte_type;
static MPI_Errhandler errors_return;
static MPI_Request request_null;

#define MPI_BYTE byte_type
#define MPI_COMM_NULL comm_null
#define MPI_COMM_SELF comm_self
#define MPI_COMM_WORLD comm_world
#define MPI_ERRORS_RETURN errors_return
#define MPI_REQUEST_NULL request_null
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_MAX_ERROR_STRING 256
enum {
    MPI_ANY_SOURCE = -1,
    MPI_UNDEFINED = -32766,
    MPI_TAG_UB = 0,
    MPI_SUCCESS = 0,
    MPI_ERR_IN_STATUS = 18,
    MPI_ERR_NO_MEM = 39,
    MPI_ERR_PROC_FAILED = 75,
    MPI_ERR_PROC_FAILED_PENDING = 76,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_FUNNELED = 1,
    MPI_THREAD_SERIALIZED = 2,
    MPI_THREAD_MULTIPLE = 3
};

/* Returns NULL, or the name of a missing variable. */
static const char *find_handles(hc_mpi_find find) {
    byte_type = find("ompi_mpi_byte");
    errors_return = find("ompi_mpi_errors_return");
    request_null = find("ompi_request_null");
    comm_null = find("ompi_mpi_comm_null");
    comm_self = find("ompi_mpi_comm_self");
    comm_world = find("ompi_mpi_comm_world");
    return !byte_type       ? "ompi_mpi_byte"
           : !errors_return ? "ompi_mpi_errors_return"
           : !request_null  ? "ompi_request_null"
           : !comm_null     ? "ompi_mpi_comm_null"
           : !comm_self     ? "ompi_mpi_comm_self"
           : !comm_world    ? "ompi_mpi_comm_world"
                            : NULL;
}

#define FAMILY hc__mpi_openmpi
#define FAMILY_NAME "Open MPI"
#define POSTS_ANY_SOURCE 1
#define FORTRAN_HAS_HANDLES_OF_C 0
#define FIND_HANDLES(find) find_handles(find)

#include "transport/net/mpi.c"
#include "transport/net/mpi_drain.h"
#include "transport/net/mpi_communicators.h"
#include "transport/net/mpi_family.h"

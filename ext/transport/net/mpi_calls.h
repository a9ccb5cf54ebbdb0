/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_calls.h - the functions of MPI that mpi.c calls, with the types of the including family.
 *
 * CALL(result, name without MPI_, arguments). Each is a pointer of the same name, so mpi.c reads like any MPI program.
 * A call costs the same as through a linked library's table.
 */
#pragma once

#define HC_MPI_CALLS(CALL)                                                                                      \
    CALL(int, Cancel, (MPI_Request *))                                                                          \
    CALL(int, Comm_create_keyval,                                                                               \
         (int (*)(MPI_Comm, int, void *, void *, void *, int *), int (*)(MPI_Comm, int, void *, void *), int *, \
          void *))                                                                                              \
    CALL(int, Comm_free, (MPI_Comm *))                                                                          \
    CALL(int, Comm_get_attr, (MPI_Comm, int, void *, int *))                                                    \
    CALL(int, Comm_get_errhandler, (MPI_Comm, MPI_Errhandler *))                                                \
    CALL(int, Comm_idup, (MPI_Comm, MPI_Comm *, MPI_Request *))                                                 \
    CALL(int, Comm_rank, (MPI_Comm, int *))                                                                     \
    CALL(int, Comm_set_attr, (MPI_Comm, int, void *))                                                           \
    CALL(int, Comm_set_errhandler, (MPI_Comm, MPI_Errhandler))                                                  \
    CALL(int, Comm_size, (MPI_Comm, int *))                                                                     \
    CALL(int, Comm_test_inter, (MPI_Comm, int *))                                                               \
    CALL(int, Error_class, (int, int *))                                                                        \
    CALL(int, Error_string, (int, char *, int *))                                                               \
    CALL(int, Finalized, (int *))                                                                               \
    CALL(int, Get_count, (const MPI_Status *, MPI_Datatype, int *))                                             \
    CALL(int, Get_elements_x, (const MPI_Status *, MPI_Datatype, MPI_Count *))                                  \
    CALL(int, Get_library_version, (char *, int *))                                                             \
    CALL(int, Grequest_start,                                                                                   \
         (int (*)(void *, MPI_Status *), int (*)(void *), int (*)(void *, int), void *, MPI_Request *))         \
    CALL(int, Ibarrier, (MPI_Comm, MPI_Request *))                                                              \
    CALL(int, Improbe, (int, int, MPI_Comm, int *, MPI_Message *, MPI_Status *))                                \
    CALL(int, Imrecv, (void *, int, MPI_Datatype, MPI_Message *, MPI_Request *))                                \
    CALL(int, Initialized, (int *))                                                                             \
    CALL(int, Iprobe, (int, int, MPI_Comm, int *, MPI_Status *))                                                \
    CALL(int, Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                            \
    CALL(int, Is_thread_main, (int *))                                                                          \
    CALL(int, Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                      \
    CALL(int, Issend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                     \
    CALL(int, Query_thread, (int *))                                                                            \
    CALL(int, Recv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *))                              \
    CALL(int, Request_free, (MPI_Request *))                                                                    \
    CALL(int, Request_get_status, (MPI_Request, int *, MPI_Status *))                                           \
    CALL(int, Test, (MPI_Request *, int *, MPI_Status *))                                                       \
    CALL(int, Testall, (int, MPI_Request *, int *, MPI_Status *))                                               \
    CALL(int, Testsome, (int, MPI_Request *, int *, int *, MPI_Status *))                                       \
    CALL(int, Type_commit, (MPI_Datatype *))                                                                    \
    CALL(int, Type_contiguous, (int, MPI_Datatype, MPI_Datatype *))                                             \
    CALL(int, Type_create_struct, (int, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Datatype *))   \
    CALL(int, Type_free, (MPI_Datatype *))                                                                      \
    CALL(double, Wtime, (void))

/* Facts of a family that mpi4py can confirm: FACT(name in mpi4py, value). */
#define HC_MPI_FACTS(FACT)                           \
    FACT("sizeof Comm", sizeof(MPI_Comm))            \
    FACT("sizeof Request", sizeof(MPI_Request))      \
    FACT("sizeof Status", sizeof(MPI_Status))        \
    FACT("handle BYTE", MPI_BYTE)                    \
    FACT("handle COMM_NULL", MPI_COMM_NULL)          \
    FACT("handle COMM_SELF", MPI_COMM_SELF)          \
    FACT("handle COMM_WORLD", MPI_COMM_WORLD)        \
    FACT("handle ERRORS_RETURN", MPI_ERRORS_RETURN)  \
    FACT("handle REQUEST_NULL", MPI_REQUEST_NULL)    \
    FACT("ANY_SOURCE", MPI_ANY_SOURCE)               \
    FACT("UNDEFINED", MPI_UNDEFINED)                 \
    FACT("TAG_UB", MPI_TAG_UB)                       \
    FACT("SUCCESS", MPI_SUCCESS)                     \
    FACT("ERR_IN_STATUS", MPI_ERR_IN_STATUS)         \
    FACT("ERR_NO_MEM", MPI_ERR_NO_MEM)               \
    FACT("THREAD_SINGLE", MPI_THREAD_SINGLE)         \
    FACT("THREAD_FUNNELED", MPI_THREAD_FUNNELED)     \
    FACT("THREAD_SERIALIZED", MPI_THREAD_SERIALIZED) \
    FACT("THREAD_MULTIPLE", MPI_THREAD_MULTIPLE)

/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - what programs over the C interface share: who this is, and checks that end the job. With WITHOUT_MPI
 * the ranks are those of a launcher.
 */
#ifndef HC_TEST_CAPI_RANKS_H
#define HC_TEST_CAPI_RANKS_H

#include "api/hpccoll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITHOUT_MPI
#define END_JOB exit(1)
#else
#include <mpi.h>
#define END_JOB MPI_Abort(MPI_COMM_WORLD, 1)
#endif

static int rank, size;

#define CHECK(condition)                                                                               \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, rank, #condition, \
                    hpccoll_last_error());                                                             \
            END_JOB;                                                                                   \
        }                                                                                              \
    } while (0)

/* The status, and words of the text. */
#define EXPECT(call, status, words)                                                                    \
    do {                                                                                               \
        int got_ = (call);                                                                             \
        if (got_ != (status) || !strstr(hpccoll_last_error(), words)) {                                \
            fprintf(stderr, "%s:%d: rank %d: %s gave %d: %s\n", __FILE__, __LINE__, rank, #call, got_, \
                    hpccoll_last_error());                                                             \
            END_JOB;                                                                                   \
        }                                                                                              \
    } while (0)

#endif

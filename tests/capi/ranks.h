/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - what programs over the C interface share: who this is, and a check that ends the job.
 */
#ifndef HC_TEST_CAPI_RANKS_H
#define HC_TEST_CAPI_RANKS_H

#include "api/hpccoll.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

#define CHECK(condition)                                                                               \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, rank, #condition, \
                    hpccoll_last_error());                                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                              \
        }                                                                                              \
    } while (0)

#endif

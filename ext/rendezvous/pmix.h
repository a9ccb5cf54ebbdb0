/* SPDX-License-Identifier: Apache-2.0
 *
 * pmix.h - exchanges through the PMIx server of a launcher (srun, prterun, Open MPI's mpirun), without MPI.
 *
 * An exchange is PMIx_Put, PMIx_Commit, PMIx_Fence and a PMIx_Get per rank (PMIx Standard 4.1, chapters 5 and 6). The
 * server accepts no process but the ranks of its job, so the values need no authentication.
 */
#pragma once

#include "core/hc.h"

#include <stddef.h>

#define HC_PMIX_WHY 256

/* Connects this process to its server; later calls only give rank and size. `prefix`: where the launcher has PMIx (its
 * variable PMIX_PREFIX), or NULL. OK, or a status and why. */
int hc_pmix_join(const char *prefix, int32_t *rank, int32_t *size, char why[HC_PMIX_WHY]);
/* An allgather; the ranks may have different numbers of bytes. All ranks of the job call it, equally often.
 * `sizes`: gets the bytes of each rank; `*all`: their bytes, one rank after the other, which the caller frees.
 * OK; STALLED: not all ranks have called it within `ns` (0: no limit); or a status and why. */
int hc_pmix_exchange(const void *mine, size_t bytes, uint64_t ns, size_t *sizes, char **all, char why[HC_PMIX_WHY]);

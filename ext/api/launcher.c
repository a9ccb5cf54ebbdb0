/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher.c - finds what has started this process: `hpccoll run` without MPI, also an elastic job of it, a launcher
 * with PMIx, or nothing.
 */
#include "api/codes.h"
#include "api/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name) {
    const char *value = hc__settings_variable(name);
    return value && *value ? value : NULL;
}

/* A whole number of at least 0 in a variable; -1: there is none. */
static int32_t number(const char *name) {
    const char *value = variable(name);
    char *end;
    long found = value ? strtol(value, &end, 10) : -1;
    return value && !*end && found >= 0 && found <= INT32_MAX ? (int32_t)found : -1;
}

/* Launchers whose processes cannot find each other here. A process among several must not be alone in its World: all
 * would write the same files. */
static int refuse_to_be_alone(void) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_NRANKS", "JSM_NAMESPACE_SIZE",
                                        "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (number(sizes[i]) > 1)
            return hc__error(HC_UNSUPPORTED,
                             "the World was not made: %s=%d: a launcher has started several processes, and without "
                             "MPI or PMIx they cannot find each other: start them by `srun --mpi=pmix` or `hpccoll "
                             "run --launcher ssh`, or use MPI and hpccoll_world_from_mpi(); hpccoll_world_alone() "
                             "makes a World of one process",
                             sizes[i], (int)number(sizes[i]));
    if (variable("SLURM_STEP_ID") && number("SLURM_STEP_NUM_TASKS") > 1)
        return hc__error(HC_UNSUPPORTED,
                         "the World was not made: srun has started %d tasks without PMIx, and they cannot find each "
                         "other: start them by `srun --mpi=pmix`; hpccoll_world_alone() makes a World of one process",
                         (int)number("SLURM_STEP_NUM_TASKS"));
    return HC_OK;
}

static int through_store(const char *store, hc_rendezvous_terms terms, hc_rendezvous **made,
                         char why[HC_RENDEZVOUS_WHY]) {
    terms.rank = number("_HPCCOLL_RANK");
    terms.size = number("_HPCCOLL_SIZE");
    if (terms.rank >= 0 && terms.rank < terms.size)
        return hc_rendezvous_over_store(store, &terms, made, why);
    snprintf(why, HC_RENDEZVOUS_WHY,
             "_HPCCOLL_STORE is set, and no variable says which rank this is: start the job by `hpccoll run`");
    return HC_INVALID;
}

int hc__launcher_rendezvous(const hc_rendezvous_terms *terms, hc_rendezvous **made) {
    char why[HC_RENDEZVOUS_WHY] = "";
    const char *store = variable("_HPCCOLL_STORE"), *coordinator = variable("_HPCCOLL_COORDINATOR");
    int status;
    if (coordinator)
        status = hc_rendezvous_over_coordinator(coordinator, number("_HPCCOLL_WORKER"), terms, made, why);
    else if (store)
        status = through_store(store, *terms, made, why);
    else if (variable("PMIX_RANK") && variable("PMIX_NAMESPACE"))
        status = hc_rendezvous_over_pmix(variable("PMIX_PREFIX"), terms, made, why);
    else if ((status = refuse_to_be_alone()) < 0)
        return status;
    else
        status = hc_rendezvous_alone(terms, made, why);
    return status < 0 ? hc__error(status, "the World was not made: %s", why) : HC_OK;
}

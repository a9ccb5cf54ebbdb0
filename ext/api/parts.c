/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c - the parts of a World: segments, the loop with its node control segment, process sets.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/parts.h"
#include "api/plans.h"
#include "api/python_world.h"
#include "api/settings.h"
#include "api/start_steps.h"

#include "world/segments.h"
#include "world/start.h"

#include <stdlib.h>

const hc_loop_calls hc__own_calls = HC_LOOP_CALLS;

/* ---- the loop ---------------------------------------------------------------------------------------------- */

static int make_loop(hc__base *base, char why[HC_WHY]) {
    static const char *const jobs[] = {"SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID"};
    const hc__settings *settings = &base->settings;
    hc_loop_words words = {settings->wire, settings->stores, settings->wait, settings->trace_dir, NULL};
    hc_loop_config config = settings->loop;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs && !words.job; i++)
        words.job = hc__settings_variable(jobs[i]);
    config.engine = settings->engine;
    config.engine.processes = &base->processes;
    base->job->fanout = (int32_t)settings->fanout;
    base->job->hierarchy = settings->hierarchy;
    base->job->hierarchy.algorithm = settings->algorithm;
    int status = hc__devices_open(base, base->machine_rank, why);
    return status < 0 ? status : hc_job_make_loop(base->job, &words, &base->segment, &config, why);
}

static int make_first_set(hc__base *base, hc_segment *segment) {
    const int32_t size = base->job->size;
    int32_t *members = malloc((size_t)size * sizeof *members);
    for (int32_t rank = 0; members && rank < size; rank++)
        members[rank] = rank;
    if (!members) {
        hc_segment_close(segment);
        return hc__error(HC_NO_MEMORY, NULL);
    }
    int status = hc__set_make(base, 0, 0, members, size, segment);
    free(members);
    return status;
}

int hc__parts_make(hc__base *base, hc_rendezvous *r) {
    const hc_exchange exchange = hc_rendezvous_exchange(r);
    const hc_job *job = base->job;
    hc_segment segment;
    char why[HC_WHY];
    int status = hc__start_outcome(r, hc_node_control_segment(job, &exchange, &base->segment, why), why);
    if (status >= 0)
        status = hc__start_agree(r, make_loop(base, why), why);
    if (status >= 0) {
        status = hc_members_segment(job, &exchange, "0", NULL, job->size, hc_shm_bytes(job->local_size), &segment, why);
        status = hc__start_outcome(r, status, why);
    }
    return status < 0 ? status : hc__start_agree(r, make_first_set(base, &segment), hpccoll_last_error());
}

void hc__parts_free(hc__base *base) {
    hc_job *job = &base->own;
    if (base->job != job) { /* Python's job owns its parts */
        hc_job_remove_user(base->job, &base->python_job);
        hc__plans_free(base, NULL);
        base->job = job;
    }
    if (job->loop)
        hc_loop_free(job->loop);
    job->loop = NULL;
    hc__devices_close(base);
    hc__plans_free(base, NULL);
    hc_in_flight_free(&job->in_flight);
    hc_slices_free(job->slices);
    job->slices = NULL;
    hc_segment_close(&base->segment);
    if (job->net)
        job->net->ops->free(job->net);
    job->net = NULL;
}

/* ---- process sets ------------------------------------------------------------------------------------------ */

int hc__set_make(hc__base *base, uint32_t number, uint32_t generation, const int32_t *ranks, int32_t size,
                 hc_segment *segment) {
    char why[HC_WHY];
    int status = base->calls.set_make(base->job, ranks, size, number, generation, segment, why);
    if (status < 0 && segment)
        hc_segment_close(segment);
    return status < 0 ? hc__error(status, "the process set could not be made: %s", why) : HC_OK;
}

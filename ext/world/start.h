/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h - the loop of a job, made at its start.
 */
#pragma once

#include "world/job.h"

/* Knobs whose values are words. */
typedef struct hc_loop_words {
    const char *wire, *stores, *wait, *trace_dir;
    const char *job; /* its number, from the scheduler, for the folder of the trace; NULL or "": not known */
} hc_loop_words;

/* Copies the names of `n` hosts and what `size` ranks are, in one allocation, which is at `hosts`. OK, or NO_MEMORY. */
int hc_processes_copy(const hc_processes *, int32_t n, int32_t size, hc_processes *to);
/* Counts the ranks of this node: `local_rank` and `local_size` of a job that has `node_of`. */
void hc_job_find_locals(hc_job *);
/* Makes the loop of the job with its control and messages, over its net and the memory of its node control segment,
 * which hc_node_control_bytes() gives the size of. It fills in the rest of the config: the words, and all that the job
 * says. OK; or a status, and why, or "". The job has all parts or none. */
int hc_job_make_loop(hc_job *, const hc_loop_words *, hc_segment *, hc_loop_config *, char why[HC_WHY]);

/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c - nodes and local ranks of a process set's members.
 */
#include "world/job.h"

#include <stdlib.h>

/* Where the node of a member stands among the nodes of the job. */
static int32_t position_of(const hc_job *job, const hc_members *m, int32_t i) {
    int32_t node = job->node_of[m->ranks[i]];
    return job->places ? job->places[node].position : node;
}

/* Numbers the nodes of the members: along the network if their places are known, else by first appearance. `numbers`:
 * scratch for a number per node of the job. */
static void number_nodes(const hc_job *job, hc_members *m, int32_t *numbers) {
    int32_t n = 0;
    for (int32_t node = 0; node < job->size; node++)
        numbers[node] = -1;
    for (int32_t i = 0; i < m->size; i++) {
        int32_t *number = &numbers[position_of(job, m, i)];
        if (*number < 0)
            *number = job->places ? 0 : n++;
    }
    for (int32_t node = 0; job->places && node < job->size; node++)
        if (numbers[node] == 0)
            numbers[node] = n++;
    for (int32_t i = 0; i < m->size; i++)
        m->nodes[i] = numbers[position_of(job, m, i)];
}

/* Finds the local ranks of the members. `local_of`: scratch for a number per rank of the job. */
static void find_locals(const hc_job *job, hc_members *m, int32_t *local_of) {
    int32_t n = 0, mine = job->node_of[job->rank];
    for (int32_t rank = 0; rank < job->size; rank++)
        local_of[rank] = job->node_of[rank] == mine ? n++ : -1;
    for (int32_t i = 0; i < m->size; i++) {
        int32_t rank = m->ranks[i];
        if (rank == job->rank) {
            m->own = i;
            m->own_local = m->nlocals;
        }
        if (local_of[rank] >= 0)
            m->locals[m->nlocals++] = local_of[rank];
    }
}

int hc_members_find(const hc_job *job, const int32_t *ranks, int32_t size, hc_members *m) {
    int32_t *scratch = malloc((size_t)job->size * sizeof *scratch);
    *m = (hc_members){.ranks = ranks, .size = size, .own = -1};
    m->nodes = malloc(2 * (size_t)size * sizeof *m->nodes + 1);
    if (scratch && m->nodes) {
        m->locals = m->nodes + size;
        number_nodes(job, m, scratch);
        find_locals(job, m, scratch);
    }
    free(scratch);
    return m->locals ? HC_OK : HC_NO_MEMORY;
}

void hc_members_free(hc_members *m) {
    free(m->nodes);
    m->nodes = m->locals = NULL;
}

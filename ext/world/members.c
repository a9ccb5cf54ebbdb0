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

static int32_t common_divisor(int32_t a, int32_t b) {
    for (int32_t rest; b; a = b, b = rest)
        rest = a % b;
    return a;
}

/* Finds the largest size of equal groups of consecutive nodes such that no group spans two switches. Switches that
 * begin in the last fifth of the nodes do not count: a job nearly always shares some switches with others, these come
 * last (node_order.c), and they would rule out the groups of all other nodes. `group_of`: scratch. */
static int32_t find_group(const hc_job *job, const hc_members *m, int32_t *group_of) {
    int32_t nodes = 0, first = 0;
    for (int32_t i = 0; i < m->size; i++) {
        group_of[m->nodes[i]] = job->places[job->node_of[m->ranks[i]]].group;
        nodes = m->nodes[i] >= nodes ? m->nodes[i] + 1 : nodes;
    }
    int32_t found = nodes;
    for (int32_t node = 0; node < nodes; node++)
        if (node == nodes - 1 || group_of[node] != group_of[node + 1]) {
            int is_tail = nodes - first <= nodes / 5;
            found = is_tail ? found : common_divisor(found, node + 1 - first);
            first = node + 1;
        }
    return found < nodes ? found : 0;
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
        m->group = job->places ? find_group(job, m, scratch) : 0;
        find_locals(job, m, scratch);
    }
    free(scratch);
    return m->locals ? HC_OK : HC_NO_MEMORY;
}

void hc_members_free(hc_members *m) {
    free(m->nodes);
    m->nodes = m->locals = NULL;
}

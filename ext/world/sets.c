/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - makes process sets and plans of a job: their data planes, their place in the control tree.
 */
#include "world/job.h"
#include "world/set_agreement.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE 50000000ull /* ns of one wait */

/* Runs a command of the loop, which needs no other rank, and releases the handle; NULL: NO_MEMORY. */
static int command(const hc_job *job, hc_handle *handle) {
    if (!handle)
        return HC_NO_MEMORY;
    hc_loop_submit(job->loop, handle, 1);
    while (!hc_loop_wait(job->loop, &handle, 1, SLICE)) {}
    int status = handle->status;
    hc_handle_release(handle);
    return status;
}

/* ---- data planes ------------------------------------------------------------------------------------------- */

static void taken(hc_segment *segment) {
    *segment = (hc_segment){.fd = -1};
}

int hc_plane_make(const hc_job *job, const hc_members *m, uint32_t number, int64_t chunk_most, hc_segment *segment,
                  hc_hierarchy_config *place, hc_node **node, hc_data **data) {
    int status = hc_shm_node_new(*segment, job->node_control, m->locals, m->own_local, m->nlocals, node);
    if (status < 0)
        return status;
    taken(segment);
    *place = job->hierarchy;
    place->set = number;
    place->set_rank = m->own;
    place->set_size = m->size;
    place->members = m->ranks;
    place->node_of = m->nodes;
    place->group = m->group;
    place->chunk_most = chunk_most;
    status = hc_hierarchy_new(place, *node, job->net, data);
    if (status < 0)
        (*node)->ops->free(*node);
    return status;
}

/* ---- process sets ------------------------------------------------------------------------------------------ */

/* The slice of a set, of which the lowest member on this node is the leader. */
static int take_slice(const hc_job *job, const hc_members *m, uint32_t number, uint32_t generation, hc_segment *segment,
                      char why[HC_WHY]) {
    int32_t leader = m->locals[0];
    for (int32_t i = 1; i < m->nlocals; i++)
        leader = m->locals[i] < leader ? m->locals[i] : leader;
    return hc_slice_take(job->slices, leader, number, generation, m->nlocals, segment, why, HC_WHY);
}

/* Makes the memory of all later sets, behind that of the first. */
static int make_slices(hc_job *job, const hc_segment *first, char why[HC_WHY]) {
    return hc_slices_new(first, job->node_control, &job->slices, why, HC_WHY);
}

int hc_set_draft_make(hc_job *job, const hc_members *m, uint32_t number, uint32_t generation, hc_segment *first,
                      hc_set_draft *draft) {
    int32_t children = 2 * job->fanout + 2;
    const hc_votes_members members = {
        m->ranks, m->nodes, m->size, m->own, m->group, job->hierarchy.algorithm, job->hierarchy.exact_sums};
    hc_segment slice = {.fd = -1}, *segment = first ? first : &slice;
    hc_node *node = NULL;
    *draft = (hc_set_draft){.place = {.set = number, .generation = generation}, .parts = {.lead = m->ranks[0]}};
    draft->children = malloc((size_t)children * sizeof *draft->children);
    hc_tree_index *index = hc_tree_index_new(m->ranks, m->nodes, m->size, job->fanout);
    if (index && draft->children) {
        draft->place.children = draft->children;
        hc_tree_place(index, m->own, &draft->place, draft->children, children);
    }
    int status = index && draft->children ? HC_OK : HC_NO_MEMORY;
    hc_tree_index_free(index);
    if (status >= 0)
        status = first ? make_slices(job, first, draft->why)
                       : take_slice(job, m, number, generation, &slice, draft->why);
    if (status >= 0)
        status = hc_plane_make(job, m, number, 0, segment, &draft->plane, &node, &draft->parts.host);
    hc_segment_close(&slice);
    if (status < 0)
        return status;
    draft->parts.node = node;
    if (job->devices)
        status = hc_plane_maker_new(job->devices, &draft->plane, draft->parts.host, job->net, &draft->parts.maker);
    if (status < 0)
        return status;
    draft->shortcut = m->nlocals == m->size ? hc_shm_shortcut(node) : hc_shm_count(node);
    if (m->nlocals < m->size && draft->shortcut)
        draft->votes = draft->parts.votes = hc_loop_votes_new(job->loop, number, draft->shortcut, &members);
    if (m->nlocals < m->size && !draft->votes)
        draft->shortcut = NULL;
    return HC_OK;
}

int hc_set_add(hc_job *job, hc_set_draft *draft) {
    hc_handle *add = hc_handle_new(HC_EV_ADD_SET, draft->place.set, 0, 0, NULL, 0, 0);
    draft->parts.place = &draft->place;
    if (add)
        add->parts = &draft->parts;
    hc_order_reset(&job->orders[draft->place.set], draft->place.set_size, draft->shortcut, draft->votes);
    int status = command(job, add);
    if (status >= 0)
        draft->parts = (hc_set_parts){0};
    return status;
}

void hc_set_draft_free(hc_set_draft *draft) {
    hc_loop_votes_free(draft->parts.votes);
    if (draft->parts.host)
        draft->parts.host->ops->free(draft->parts.host);
    if (draft->parts.maker)
        draft->parts.maker->free(draft->parts.maker);
    free(draft->children);
}

int hc_set_make(hc_job *job, const int32_t *ranks, int32_t size, uint32_t number, uint32_t generation,
                hc_segment *segment, char why[HC_WHY]) {
    hc_members members;
    hc_set_draft draft = {.why = ""};
    int status = hc_members_find(job, ranks, size, &members);
    if (status >= 0) {
        status = hc_set_draft_make(job, &members, number, generation, segment, &draft);
        if (status >= 0)
            status = hc_set_add(job, &draft);
        hc_set_draft_free(&draft);
    }
    hc_members_free(&members);
    if (status < 0)
        snprintf(why, HC_WHY, "%s", *draft.why ? draft.why : hc_status_text(status));
    return status;
}

/* The handle is no memory of the heap, which may be what is missing. */
void hc_sets_fail(hc_job *job, uint32_t number, int status, const char *why) {
    hc_handle handle = {.kind = HC_EV_ADD_SET, .set = number, .status = status, .value = -1};
    hc_handle *waited = &handle;
    if (status == HC_SHUT_DOWN || status == HC_BROKEN || status == HC_FORKED)
        return;
    handle.request.name = why;
    handle.request.name_len = (uint32_t)strlen(why);
    atomic_init(&handle.refs, 1); /* the driver has another one until it is done, so nobody frees it */
    hc_loop_submit(job->loop, &handle, 1);
    while (!hc_loop_wait(job->loop, &waited, 1, SLICE)) {}
    while (atomic_load_explicit(&handle.refs, memory_order_acquire) > 1)
        sched_yield(); /* the driver says that it is done before it releases its own */
    hc_free(handle.text);
}

int hc_set_remove(hc_job *job, uint32_t number) {
    hc_order_reset(&job->orders[number], 0, NULL, NULL);
    return command(job, hc_handle_new(HC_EV_REMOVE_SET, number, 0, 0, NULL, 0, 0));
}

/* ---- plans ------------------------------------------------------------------------------------------------- */

static int use_planes(const hc_job *job, const hc_members *m, const hc_plan_terms *terms, hc_segment *segment,
                      hc_plan *plan) {
    hc_hierarchy_config place;
    hc_node *node;
    hc_data *data;
    uint32_t number = terms->number >= 0 ? HC_MAX_SETS + (uint32_t)terms->number : 0;
    int64_t chunk = hc_plan_chunk_bytes(&terms->agreed);
    int status = hc_plane_make(job, m, number, chunk, segment, &place, &node, &data);
    if (status >= 0)
        hc_plan_use(plan, data, 0);
    return status;
}

static int use_flat(const hc_job *job, const hc_members *m, const hc_plan_terms *terms, hc_segment *segment,
                    hc_plan *plan) {
    int status = hc_plan_use_flat(plan, &terms->agreed, *segment, job->node_control, m->locals);
    if (status >= 0)
        taken(segment);
    return status;
}

int hc_plan_build(const hc_job *job, const hc_members *m, const hc_plan_terms *terms, hc_handle *handle,
                  hc_segment *segment, hc_plan **plan) {
    handle->kind = HC_HANDLE_PLAN;
    *plan = hc_plan_new(job->loop, handle, m->size);
    if (!*plan)
        return HC_NO_MEMORY;
    int flat = hc_plan_is_flat(&terms->agreed);
    int status = flat ? use_flat(job, m, terms, segment, *plan) : use_planes(job, m, terms, segment, *plan);
    if (terms->agreed.is_barrier)
        handle->request.operation = HC_BARRIER; /* in reports and errors */
    if (status < 0) {
        hc_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}

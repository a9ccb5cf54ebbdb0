/* SPDX-License-Identifier: Apache-2.0
 *
 * device_paths.c - chooses the path of a batch on a device, and opens what that path needs.
 *
 * All ranks must choose alike, so the choice depends only on what all ranks know: the mode, the placement, the batch's
 * signature and size, and the facts that the ranks exchanged before the first batch that NCCL could run.
 */
#include "cuda/device_plane.h"

#include <stdio.h>

/* A rail's part of a chunk: so large that launches are few, so small that chunks overlap. An estimate. */
#define SHARD_BYTES ((int64_t)2 << 20)
#define CHUNK_MOST ((int64_t)64 << 20)

/* ---- the placement ---------------------------------------------------------------------------------------------- */

/* Counts the nodes and their ranks, and finds the groups that share a communicator. */
void hc__plane_place(hc__plane *p) {
    const int32_t n = p->parts.place.set_size, *node_of = p->parts.place.node_of;
    for (int32_t r = 0; r < n; r++) {
        int32_t ranks = 0;
        for (int32_t q = 0; q < n; q++)
            ranks += node_of[q] == node_of[r];
        p->largest = ranks > p->largest ? ranks : p->largest;
        p->smallest = r == 0 || ranks < p->smallest ? ranks : p->smallest;
        p->nodes = node_of[r] >= p->nodes ? node_of[r] + 1 : p->nodes;
        p->group_of[r] = p->config.mode == HC_DEVICE_MPI ? r : node_of[r];
        if (p->config.mode == HC_DEVICE_NCCL_FLAT)
            p->group_of[r] = 0;
        p->groups = p->group_of[r] >= p->groups ? p->group_of[r] + 1 : p->groups;
    }
}

/* ---- which way -------------------------------------------------------------------------------------------------- */

/* One communicator joins all ranks. */
static int is_flat(const hc__plane *p) {
    return p->groups == 1 && p->config.mode != HC_DEVICE_MPI;
}

/* With one rank per node NCCL has nothing to do. Then this path pays only if MPI takes device memory, or on request. */
static int is_idle(const hc__plane *p) {
    int asked = p->config.mode == HC_DEVICE_NCCL_FLAT || p->config.mode == HC_DEVICE_MPI;
    return !asked && p->largest == 1 && p->nodes > 1;
}

int hc__plane_has_shares(const hc_batch *b) {
    return hc_operation_has(b->operation, HC_OP_REDUCES) && !hc_operation_has(b->operation, HC_OP_ELEMENTWISE);
}

/* 1: the hierarchy runs this batch over a node of NCCL, with a net or without. A reducescatter needs a rail per
 * rank. */
int hc__plane_has_stages(const hc__plane *p, const hc_batch *b) {
    int32_t rails = p->parts.place.rails;
    int all_drive = p->smallest == p->largest && (rails == 0 || rails >= p->largest) &&
                    p->config.mode != HC_DEVICE_MPI && !is_idle(p);
    if (hc_operation_has(b->operation, HC_OP_ROWS_DIFFER))
        return 0;
    return !hc__plane_has_shares(b) || is_flat(p) || all_drive;
}

/* No batch will ever take another path than staged. */
static int stages_all(const hc__plane *p) {
    return p->config.mode == HC_DEVICE_STAGED || (is_idle(p) && p->config.gpu_aware.mode == HC_GPU_AWARE_NO);
}

/* Small batches go through the host where latency counts: no NCCL launches, one copy in each direction. */
static int has_small(const hc__plane *p) {
    return p->config.mode == HC_DEVICE_AUTO && p->nodes > 1 && p->config.small > 0;
}

/* Valid only for operations whose counts all ranks agree on. */
static int is_small(const hc__plane *p, const hc_batch *b) {
    int64_t count = 0;
    for (int32_t i = 0; i < b->npieces; i++)
        count += b->pieces[i].count;
    return has_small(p) && count * (int64_t)hc_dtype_size(b->dtype) <= p->config.small;
}

/* NCCL chooses the order of its additions, so a deterministic batch does not use it. */
int hc__plane_suits_nccl(const hc__plane *p, const hc_batch *b) {
    int reduces = hc_operation_has(b->operation, HC_OP_REDUCES);
    if (p->config.mode == HC_DEVICE_STAGED || (reduces && b->deterministic) || p->comms.forbidden || is_small(p, b))
        return 0;
    if (!is_flat(p) && !hc__plane_has_stages(p, b))
        return 0;
    if (is_idle(p) && (p->config.gpu_aware.mode == HC_GPU_AWARE_NO || (p->opened && p->comms.against >= 0)))
        return 0;
    return hc_device_path(b->operation, b->reduction, b->dtype) == HC_PATH_NCCL;
}

/* ---- the first batches on the device ---------------------------------------------------------------------------- */

int hc__plane_open_device(hc__plane *p) {
    p->device = p->config.device ? *p->config.device : NULL;
    p->borrowed = p->device != NULL;
    if (p->device)
        return HC_OK;
    p->base.text = p->why;
    int status = hc_device_open(p->config.number, &p->config.files, &p->device, p->why);
    return status < 0 ? HC_TRANSPORT : HC_OK;
}

int hc__plane_open_staged(hc__plane *p) {
    p->staged.device = p->device;
    if (!p->facts[0])
        snprintf(p->facts, sizeof p->facts, "device %d (%s): %sstaged through the host", p->device->number,
                 p->device->pci, stages_all(p) ? "" : "so far ");
    return hc__staged_open(&p->staged);
}

/* 1: this rank allows MPI to read its device memory. */
static int may_mpi(hc__plane *p) {
    if (p->groups > HC_SUM_MOST) {
        snprintf(p->mpi_words, sizeof p->mpi_words, "no kernel adds up so many nodes: %d", p->groups);
        return 0;
    }
    return hc__gpu_aware(&p->config.gpu_aware, p->device, p->mpi_words, sizeof p->mpi_words);
}

void hc__plane_open_comms(hc__plane *p) {
    p->comms = (hc__comms){.device = p->device,
                           .host = p->parts.host,
                           .rank = p->parts.place.set_rank,
                           .size = p->parts.place.set_size,
                           .node_of = p->parts.place.node_of,
                           .group_of = p->group_of,
                           .shares = p->config.shares_device,
                           .alone = p->config.mode == HC_DEVICE_MPI || is_idle(p),
                           .gpu_aware = (uint8_t)may_mpi(p),
                           .against = -1,
                           .patience = p->config.patience};
    p->opened = 1;
    if (p->comms.alone)
        p->launch.order = NULL; /* only NCCL needs an order */
    hc__comms_begin(&p->comms, p->config.nccl_library, p->config.nccl_files);
}

/* One rank's "no" holds for all ranks; that rank knows the reason. */
static void adopt_words(hc__plane *p) {
    if (p->comms.against >= 0 && p->comms.gpu_aware)
        snprintf(p->mpi_words, sizeof p->mpi_words, "rank %d says that MPI cannot have its GPU's: `hpccoll info` there",
                 p->comms.against);
}

static void say_fast(hc__plane *p) {
    char version[32], over[80], mpi[640] = "";
    hc_nccl_version_text(p->comms.nccl.version, version, sizeof version);
    if (p->comms.alone)
        snprintf(over, sizeof over, "MPI over %d ranks", p->groups);
    else
        snprintf(over, sizeof over, "NCCL %s over %d ranks%s", version, p->comms.group_size,
                 p->groups > 1 ? " of this node" : "");
    if (p->groups > 1)
        snprintf(mpi, sizeof mpi, ", messages%s %s memory (%s)", p->comms.alone ? "" : " between nodes",
                 p->comms.against < 0 ? "from device" : "through pinned", p->mpi_words);
    snprintf(p->facts, sizeof p->facts, "device %d (%s): %s%s; what that lacks%s is staged through the host",
             p->device->number, p->device->pci, over, mpi, has_small(p) ? ", or is small," : "");
}

/* A hierarchy whose nodes are the groups that NCCL joins. */
static int open_fast(hc__plane *p) {
    hc_hierarchy_config place = p->parts.place;
    int32_t all = place.set_size; /* the hierarchy limits it to the ranks of the smallest node */
    place.node_of = p->group_of;
    place.group = p->groups == p->nodes ? place.group : 0;
    place.rails = place.rails > 0 ? place.rails : all;
    place.chunk_most = CHUNK_MOST;
    int32_t most = p->comms.alone ? 1 : p->largest;
    if (place.chunk_bytes == 0 && p->groups > 1)
        place.chunk_bytes = SHARD_BYTES * (place.rails < most ? place.rails : most);
    int status = hc__nccl_node_new(p->device, &p->comms, p->parts.neutral, &p->node);
    if (status >= 0 && p->groups > 1 && p->comms.against < 0) {
        status = hc__sums_open(&p->sums, p->device, p->parts.net);
        p->node->sums = &p->sums;
        place.arithmetic = &p->sums.base;
    }
    if (status >= 0)
        status = p->parts.new_hierarchy(&place, &p->node->base, p->groups > 1 ? p->parts.net : NULL, &p->fast);
    if (status >= 0 && is_flat(p))
        status = hc__nccl_rows_open(&p->rows, p->node, p->parts.host, place.members, place.chunk_bytes);
    say_fast(p);
    return status;
}

int hc__plane_open_test(hc__plane *p) {
    int status = hc__comms_test(&p->comms);
    if (status != HC_DONE)
        return status;
    adopt_words(p);
    if (p->comms.forbidden) {
        snprintf(p->facts, sizeof p->facts, "device %d (%s): staged through the host: %s", p->device->number,
                 p->device->pci, p->comms.text);
        if (p->config.mode != HC_DEVICE_AUTO)
            return HC_TRANSPORT;
        p->comms.text[0] = 0; /* not a failure */
    } else if (is_idle(p) && p->comms.against >= 0) {
        snprintf(p->facts, sizeof p->facts, "device %d (%s): staged through the host: MPI does not get its memory (%s)",
                 p->device->number, p->device->pci, p->mpi_words);
    } else
        status = open_fast(p);
    return status < 0 ? status : HC_DONE;
}

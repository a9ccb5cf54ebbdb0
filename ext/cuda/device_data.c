/* SPDX-License-Identifier: Apache-2.0
 *
 * device_data.c - the data plane of a set whose batches may lie on a device: which way each of them goes.
 *
 *     host      batches on the host          the host's data plane, as it is
 *     staged    anything on the device       through the host's data plane (staged.c)
 *     fast      allreduce, broadcast,        a hierarchy of its own, whose node is NCCL (nccl_node.c), or one rank
 *               reducescatter
 *     rows      allgather, alltoall          NCCL, where all ranks are in one communicator (nccl_rows.c)
 *
 * The choice is made of what all ranks know: the mode, the placement, the batch's signature and size, and the facts that the
 * ranks told each other before the first batch that NCCL could run.
 */
#include "nccl_direct.h"
#include "parcels.h"
#include "staged.h"
#include "turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a rail in a chunk: seldom enough to launch, soon enough to overlap. Estimate. */
#define SHARD_BYTES ((int64_t)2 << 20)
#define CHUNK_MOST ((int64_t)64 << 20)

enum way { HOST, STAGED, OPENING, TURN, FAST, ROWS };

typedef struct plane {
    hc_data base;
    hc_device_data_config config;
    hc_net *net;
    hc_data *host;      /* owned */
    hc_device *device;  /* NULL before the first batch on it */
    uint8_t borrowed;   /* the World's */
    enum way way;       /* of the batch that runs */
    hc_batch *batch;    /* OPENING, TURN: waits */
    uint64_t counts[2]; /* staged, others */
    hc__turn turn;
    hc__parcels parcels;
    hc__staged staged;
    hc__comms comms;
    uint8_t opened; /* comms: begun */
    hc__sums sums;  /* where MPI is given the device's memory */
    hc__nccl_node *node;
    hc_data *fast;
    hc__nccl_rows rows;
    int32_t *group_of; /* of each rank: who is joined by one communicator */
    int32_t smallest, largest, nodes,
        groups;          /* ranks of the smallest and the largest node; how many of each */
    char mpi_words[512]; /* whether MPI gets the device's memory, and why */
    char facts[1024], why[HC_DEVICE_WHY];
} plane;

/* ---- which way ----------------------------------------------------------------------------------------------------- */

/* One communicator joins all ranks. */
static int is_flat(const plane *p) {
    return p->groups == 1 && p->config.mode != HC_DEVICE_MPI;
}

/* Nodes of one rank leave NCCL nothing to do; it is worth it where MPI takes the device's memory, or was asked for. */
static int is_idle(const plane *p) {
    int asked = p->config.mode == HC_DEVICE_NCCL_FLAT || p->config.mode == HC_DEVICE_MPI;
    return !asked && p->largest == 1 && p->nodes > 1;
}

/* What the hierarchy runs over a node of NCCL, with a net or without; a reducescatter where each rank has a rail. */
static int has_stages(const plane *p, const hc_batch *b) {
    int32_t rails = p->config.place.rails;
    int all_drive = p->smallest == p->largest && (rails == 0 || rails >= p->largest) &&
                    p->config.mode != HC_DEVICE_MPI && !is_idle(p);
    return b->operation == HC_ALLREDUCE || b->operation == HC_BROADCAST ||
           (b->operation == HC_REDUCESCATTER && (is_flat(p) || all_drive));
}

/* A batch whose latency counts: its way by the host has no launches of NCCL, and one copy in each direction. */
static int has_small(const plane *p) {
    return p->config.mode == HC_DEVICE_AUTO && p->nodes > 1 && p->config.small > 0;
}

static int is_small(const plane *p, const hc_batch *b) {
    int64_t count = 0;
    for (int32_t i = 0; i < b->npieces; i++)
        count += b->pieces[i].count;
    return has_small(p) && count * (int64_t)hc_dtype_size(b->dtype) <= p->config.small;
}

/* NCCL adds in an order of its own. */
static int suits_nccl(const plane *p, const hc_batch *b) {
    int reduces = b->operation == HC_ALLREDUCE || b->operation == HC_REDUCESCATTER;
    if (p->config.mode == HC_DEVICE_STAGED || (reduces && b->deterministic) || p->comms.forbidden ||
        is_small(p, b))
        return 0;
    if (!is_flat(p) && !has_stages(p, b))
        return 0;
    if (is_idle(p) && (p->config.gpu_aware.mode == HC_GPU_AWARE_NO || (p->opened && p->comms.against >= 0)))
        return 0;
    return hc_device_way(b->operation, b->reduction, b->dtype) == HC_WAY_NCCL;
}

/* ---- the first batches on the device ------------------------------------------------------------------------------- */

static int open_device(plane *p) {
    p->device = p->config.device ? *p->config.device : NULL;
    p->borrowed = p->device != NULL;
    if (p->device)
        return HC_OK;
    p->base.text = p->why;
    int status = hc_device_open(p->config.number, p->config.vendor, p->config.cuda_library, &p->device,
                                p->why);
    return status < 0 ? HC_TRANSPORT : HC_OK;
}

static int open_staged(plane *p) {
    p->staged.device = p->device;
    if (!p->facts[0])
        snprintf(p->facts, sizeof p->facts, "device %d (%s): staged through the host", p->device->number,
                 p->device->pci);
    return hc__staged_open(&p->staged);
}

/* Whether this rank says that MPI may have its device's memory. */
static int may_mpi(plane *p) {
    if (p->groups > HC_SUM_MOST) {
        snprintf(p->mpi_words, sizeof p->mpi_words, "no kernel adds up so many nodes: %d", p->groups);
        return 0;
    }
    return hc__gpu_aware(&p->config.gpu_aware, p->device, p->mpi_words, sizeof p->mpi_words);
}

static void open_comms(plane *p) {
    p->comms = (hc__comms){.device = p->device,
                           .host = p->host,
                           .rank = p->config.place.set_rank,
                           .size = p->config.place.set_size,
                           .node_of = p->config.place.node_of,
                           .group_of = p->group_of,
                           .shares = p->config.shares_device,
                           .alone = p->config.mode == HC_DEVICE_MPI || is_idle(p),
                           .gpu_aware = (uint8_t)may_mpi(p),
                           .against = -1,
                           .patience = p->config.patience};
    p->opened = 1;
    if (p->comms.alone)
        p->turn.turns = NULL; /* what NCCL needs */
    hc__comms_begin(&p->comms, p->config.vendor, p->config.nccl_library, p->config.nccl_files);
}

/* Another rank's "no" holds for all; it knows why. */
static void adopt_words(plane *p) {
    if (p->comms.against >= 0 && p->comms.gpu_aware)
        snprintf(p->mpi_words, sizeof p->mpi_words,
                 "rank %d says that MPI cannot have its GPU's: `hpccoll info` there", p->comms.against);
}

static void say_fast(plane *p) {
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
static int open_fast(plane *p) {
    hc_hierarchy_config place = p->config.place;
    int32_t all = place.set_size; /* the hierarchy takes no more than the smallest node has */
    place.node_of = p->group_of;
    place.rails = place.rails > 0 ? place.rails : all;
    place.chunk_most = CHUNK_MOST;
    int32_t most = p->comms.alone ? 1 : p->largest;
    if (place.chunk_bytes == 0 && p->groups > 1)
        place.chunk_bytes = SHARD_BYTES * (place.rails < most ? place.rails : most);
    int status = hc__nccl_node_new(p->device, &p->comms, &p->node);
    if (status >= 0 && p->groups > 1 && p->comms.against < 0) {
        status = hc__sums_open(&p->sums, p->device, p->net);
        p->node->sums = &p->sums;
        place.sums = &p->sums.base;
    }
    if (status >= 0)
        status = hc_hierarchy_new(&place, &p->node->base, p->groups > 1 ? p->net : NULL, &hc_host_memory,
                                  &p->fast);
    if (status >= 0 && is_flat(p))
        status = hc__nccl_rows_open(&p->rows, p->node, p->host, place.chunk_bytes);
    say_fast(p);
    return status;
}

/* ---- a batch ------------------------------------------------------------------------------------------------------- */

/* The words of whoever failed. */
static int say(plane *p, int status) {
    if (status >= 0 || status == HC_RESULT_SIZE)
        return status;
    const char *const texts[] = {p->node ? p->node->text : "", p->sums.text, p->comms.text, p->staged.text,
                                 p->parcels.text};
    p->base.text = p->host->text;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i][0]) {
            p->base.text = texts[i];
            break;
        }
    return status;
}

/* Results that the hierarchy would allocate on the host; what does not fit is its affair. */
static int place_shares(plane *p, hc_batch *b) {
    int late, status = HC_OK;
    for (int32_t i = 0; i < b->npieces && status >= 0; i++) {
        hc_piece *piece = &b->pieces[i];
        int64_t rows = hc_share(piece->rows, p->config.place.set_size, p->config.place.set_rank);
        status = hc__place_on_device(p->device, b, piece, rows, &late, p->node->text);
        if (piece->out_owned)
            piece->out_capacity = rows * piece->row * (int64_t)hc_dtype_size(b->dtype);
    }
    return status;
}

static int start_nccl(plane *p, hc_batch *batch) {
    int status = batch->operation == HC_REDUCESCATTER ? place_shares(p, batch) : HC_OK;
    p->way = has_stages(p, batch) ? FAST : ROWS;
    if (status < 0)
        return status;
    return p->way == FAST ? p->fast->ops->start(p->fast, batch) : hc__nccl_rows_start(&p->rows, batch);
}

/* Behind, on the device, what other sets have launched. */
static int take_turn(plane *p) {
    hc_gpu_event before = p->turn.turns->launched;
    int status = before ? p->device->driver.stream_wait_event(p->node->work, before, 0) : 0;
    status = hc__nccl_failed(p->node, status, "waiting for another set's batch");
    if (status >= 0)
        status = start_nccl(p, p->batch);
    return status < 0 ? status : HC_MOVED;
}

/* A set of one rank waits for nobody, and nobody for it. */
static int begin_nccl(plane *p, hc_batch *batch) {
    if (!p->turn.turns)
        return start_nccl(p, batch);
    p->way = TURN;
    return hc__turn_ask(&p->turn);
}

static int begin(plane *p, hc_batch *batch) {
    if (suits_nccl(p, batch)) {
        if (!p->opened)
            open_comms(p);
        p->batch = batch;
        p->way = OPENING;
        p->counts[1] += p->fast != NULL;
        return p->fast ? begin_nccl(p, batch) : HC_OK;
    }
    p->way = STAGED;
    p->counts[0]++;
    int status = p->staged.device ? HC_OK : open_staged(p);
    return status < 0 ? status : hc__staged_start(&p->staged, batch);
}

/* Communicators; then the batch that waited for them. */
static int go_on_opening(plane *p) {
    int status = hc__comms_test(&p->comms);
    if (status != HC_DONE)
        return status;
    adopt_words(p);
    if (p->comms.forbidden) {
        snprintf(p->facts, sizeof p->facts, "device %d (%s): staged through the host: %s", p->device->number,
                 p->device->pci, p->comms.text);
        if (p->config.mode != HC_DEVICE_AUTO)
            return HC_TRANSPORT;
        p->comms.text[0] = 0; /* no failure */
    } else if (is_idle(p) && p->comms.against >= 0) {
        snprintf(p->facts, sizeof p->facts,
                 "device %d (%s): staged through the host: MPI does not get its memory (%s)",
                 p->device->number, p->device->pci, p->mpi_words);
    } else
        status = open_fast(p);
    if (status >= 0)
        status = begin(p, p->batch);
    return status < 0 ? status : HC_MOVED;
}

static int go_on(plane *p) {
    int status;
    p->base.naps = 0;
    if (p->way == OPENING) {
        status = go_on_opening(p);
        p->base.naps = status == HC_IDLE;
    } else if (p->way == TURN) {
        status = hc__turn_test(&p->turn);
        status = status == HC_DONE ? take_turn(p) : status;
    } else if (p->way != STAGED) {
        p->sums.waits = 0;
        status = p->way == FAST ? p->fast->ops->test(p->fast) : hc__nccl_rows_test(&p->rows);
        p->base.naps = p->node->waits | p->sums.waits;
        if (p->turn.turns && (status == HC_DONE || status == HC_RESULT_SIZE))
            hc__turn_end(&p->turn, p->node->done);
    } else {
        status = p->staged.batch ? hc__staged_test(&p->staged) : HC_DONE;
        p->base.naps = p->staged.waits;
    }
    return status;
}

static int start_on_device(plane *p, hc_batch *batch) {
    int status = p->device ? HC_OK : open_device(p);
    if (status < 0)
        return status;
    hc_gpu_context before = hc_device_enter(p->device);
    status = say(p, begin(p, batch));
    hc_device_leave(p->device, before);
    return status;
}

static int start(hc_data *data, hc_batch *batch) {
    plane *p = (plane *)data;
    p->way = HOST;
    return batch->memory == HC_MEMORY_HOST ? p->host->ops->start(p->host, batch) : start_on_device(p, batch);
}

static int test(hc_data *data) {
    plane *p = (plane *)data;
    if (p->way == HOST)
        return p->host->ops->test(p->host);
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, go_on(p));
    hc_device_leave(p->device, before);
    return status;
}

static int watch(hc_data *data) {
    plane *p = (plane *)data;
    if (!p->fast || p->comms.ended)
        return HC_OK;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__nccl_node_watch(p->node));
    hc_device_leave(p->device, before);
    return status < 0 ? status : HC_OK;
}

/* ---- letters ---------------------------------------------------------------------------------------------------------- */

static int parcel_open(hc_data *data, hc_parcel *parcel, int sends) {
    plane *p = (plane *)data;
    int status = p->device ? HC_OK : open_device(p);
    if (status < 0)
        return status;
    hc_gpu_context before = hc_device_enter(p->device);
    status = say(p, hc__parcel_open(&p->parcels, p->device, parcel, sends));
    hc_device_leave(p->device, before);
    return status;
}

static int parcel_test(hc_data *data, hc_parcel *parcel) {
    plane *p = (plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__parcel_test(&p->parcels, parcel));
    hc_device_leave(p->device, before);
    return status;
}

static int parcel_deliver(hc_data *data, hc_parcel *parcel) {
    plane *p = (plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__parcel_deliver(&p->parcels, parcel));
    hc_device_leave(p->device, before);
    return status;
}

static void parcel_close(hc_data *data, hc_parcel *parcel) {
    plane *p = (plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    hc__parcel_close(&p->parcels, parcel);
    hc_device_leave(p->device, before);
}

/* ---- the end --------------------------------------------------------------------------------------------------------- */

static void abandon(hc_data *data) {
    plane *p = (plane *)data;
    p->host->ops->abandon(p->host);
    p->staged.batch = NULL;
    p->base.naps = 0;
    hc__turn_drop(&p->turn);
    if (!p->opened)
        return;
    hc_gpu_context before = hc_device_enter(p->device);
    if (p->fast)
        p->fast->ops->abandon(p->fast);
    hc__comms_abort(&p->comms);
    hc_device_leave(p->device, before);
}

static void free_own(plane *p) {
    hc__device_config_drop(&p->config);
    free(p->group_of);
    free(p);
}

static void destroy(hc_data *data) {
    plane *p = (plane *)data;
    hc_gpu_context before = p->device ? hc_device_enter(p->device) : NULL;
    if (p->opened)
        hc__comms_close(&p->comms);
    if (p->fast) {
        hc__turn_forget(&p->turn, p->node->done);
        hc__nccl_rows_close(&p->rows);
        p->fast->ops->free(p->fast);
    }
    hc__sums_close(&p->sums, p->net);
    hc__staged_close(&p->staged);
    hc__parcels_free(&p->parcels);
    if (p->device)
        hc_device_leave(p->device, before);
    if (!p->borrowed)
        hc_device_close(p->device);
    p->host->ops->free(p->host);
    free_own(p);
}

static const struct hc_data_ops plane_ops = {
    .name = "device",
    .start = start,
    .test = test,
    .abandon = abandon,
    .free = destroy,
    .watch = watch,
    .parcel_open = parcel_open,
    .parcel_test = parcel_test,
    .parcel_deliver = parcel_deliver,
    .parcel_close = parcel_close,
};

const char *hc_device_data_facts(const hc_data *data) {
    return ((const plane *)data)->facts;
}

uint64_t hc_device_data_count(const hc_data *data, enum hc_device_way way) {
    return ((const plane *)data)->counts[way == HC_WAY_NCCL];
}

/* ---- making ---------------------------------------------------------------------------------------------------------- */

/* How many nodes there are, and of how many ranks; who is joined by one communicator. */
static void find_groups(plane *p) {
    const int32_t n = p->config.place.set_size, *node_of = p->config.place.node_of;
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

int hc_device_data_new(const hc_device_data_config *config, hc_data *host, hc_net *net, hc_data **data) {
    *data = NULL;
    int is_known = config->mode >= 0 && config->mode < HC_DEVICE_MODE_COUNT && config->gpu_aware.mode >= 0;
    if (!is_known || (config->mode == HC_DEVICE_MPI && config->place.set_size > 1 && !net))
        return HC_INVALID;
    plane *p = calloc(1, sizeof *p);
    if (!p)
        return HC_NO_MEMORY;
    p->group_of = malloc((size_t)config->place.set_size * sizeof *p->group_of);
    if (hc__device_config_copy(&p->config, config) < 0 || !p->group_of) {
        free_own(p);
        return HC_NO_MEMORY;
    }
    p->base.ops = &plane_ops;
    p->net = net;
    p->host = host;
    p->staged.host = host;
    p->staged.rank = config->place.set_rank;
    p->staged.size = config->place.set_size;
    p->staged.chunk_bytes = config->place.chunk_bytes;
    p->turn = (hc__turn){
        .turns = config->place.set_size > 1 ? config->turns : NULL, .host = host, .set = config->place.set};
    find_groups(p);
    *data = &p->base;
    return HC_OK;
}

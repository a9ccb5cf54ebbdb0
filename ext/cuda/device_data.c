/* SPDX-License-Identifier: Apache-2.0
 *
 * device_data.c - a set's data plane for batches on a device: it sends each batch along one of three paths.
 *
 *     staged    every operation              through the host's data plane (staged.c)
 *     fast      allreduce, broadcast,        a second hierarchy, whose node is NCCL (nccl_node.c) or one rank
 *               reducescatter
 *     rows      allgather, alltoall          NCCL, where all ranks are in one communicator (nccl_rows.c)
 *
 * device_paths.c chooses.
 */
#include "cuda/device_plane.h"

#include <stdlib.h>

/* ---- a batch ---------------------------------------------------------------------------------------------------- */

/* Sets the error text to the text of the failed part. */
static int say(hc__plane *p, int status) {
    if (status >= 0 || status == HC_RESULT_SIZE)
        return status;
    const char *const texts[] = {p->node ? p->node->text : "", p->sums.text, p->comms.text, p->staged.text,
                                 p->p2p_buffers.text};
    p->base.text = p->parts.host->text;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i][0]) {
            p->base.text = texts[i];
            break;
        }
    return status;
}

/* Allocates on the device the results that the hierarchy would allocate on the host; it still checks the callers'
 * sizes. */
static int place_shares(hc__plane *p, hc_batch *b) {
    int late, status = HC_OK;
    for (int32_t i = 0; i < b->npieces && status >= 0; i++) {
        hc_piece *piece = &b->pieces[i];
        int64_t rows = hc_share(piece->rows, p->parts.place.set_size, p->parts.place.set_rank);
        status = hc__place_on_device(p->device, b, piece, rows, &late, p->node->text);
        if (piece->out_owned)
            piece->out_capacity = rows * hc_piece_row_bytes(piece, b->dtype);
    }
    return status;
}

static int start_nccl(hc__plane *p, hc_batch *batch) {
    int status = hc__plane_has_shares(batch) ? place_shares(p, batch) : HC_OK;
    p->path = hc__plane_has_stages(p, batch) ? HC__PATH_STAGES : HC__PATH_ROWS;
    if (status < 0)
        return status;
    return p->path == HC__PATH_STAGES ? p->fast->ops->start(p->fast, batch) : hc__nccl_rows_start(&p->rows, batch);
}

/* The stream waits, on the device, for the batch that another set launched last. */
static int take_launch_slot(hc__plane *p) {
    hc_gpu_event before = p->launch.order->launched;
    int status = before ? p->device->driver.stream_wait_event(p->node->work, before, 0) : 0;
    status = hc__nccl_failed(p->node, status, "waiting for another set's batch");
    if (status >= 0)
        status = start_nccl(p, p->batch);
    return status < 0 ? status : HC_MOVED;
}

/* Without a launch order no other set can wait in a circle with this one. */
static int begin_nccl(hc__plane *p, hc_batch *batch) {
    if (!p->launch.order)
        return start_nccl(p, batch);
    p->path = HC__PATH_QUEUED;
    return hc__launch_slot_ask(&p->launch);
}

static int begin(hc__plane *p, hc_batch *batch) {
    if (hc__plane_suits_nccl(p, batch)) {
        if (!p->opened)
            hc__plane_open_comms(p);
        p->batch = batch;
        p->path = HC__PATH_OPENING;
        p->counts[1] += p->fast != NULL;
        return p->fast ? begin_nccl(p, batch) : HC_OK;
    }
    p->path = HC__PATH_STAGED;
    p->counts[0]++;
    int status = p->staged.device ? HC_OK : hc__plane_open_staged(p);
    return status < 0 ? status : hc__staged_start(&p->staged, batch);
}

/* Opens communicators, then starts the batch that waited for them. */
static int go_on_opening(hc__plane *p) {
    int status = hc__plane_open_test(p);
    if (status == HC_DONE)
        status = begin(p, p->batch);
    else if (status == HC_IDLE)
        return HC_IDLE;
    return status < 0 ? status : HC_MOVED;
}

static int go_on(hc__plane *p) {
    int status;
    p->base.needs_polling = 0;
    if (p->path == HC__PATH_OPENING) {
        status = go_on_opening(p);
        p->base.needs_polling = status == HC_IDLE;
    } else if (p->path == HC__PATH_QUEUED) {
        status = hc__launch_slot_test(&p->launch);
        status = status == HC_DONE ? take_launch_slot(p) : status;
    } else if (p->path != HC__PATH_STAGED) {
        p->sums.waits = 0;
        status = p->path == HC__PATH_STAGES ? p->fast->ops->test(p->fast) : hc__nccl_rows_test(&p->rows);
        p->base.needs_polling = p->node->waits | p->sums.waits;
        if (p->launch.order && (status == HC_DONE || status == HC_RESULT_SIZE))
            hc__launch_slot_end(&p->launch, p->node->done);
    } else {
        status = p->staged.batch ? hc__staged_test(&p->staged) : HC_DONE;
        p->base.needs_polling = p->staged.waits;
    }
    return status;
}

static int start(hc_data *data, hc_batch *batch) {
    hc__plane *p = (hc__plane *)data;
    int status = p->device ? HC_OK : hc__plane_open_device(p);
    if (status < 0)
        return status;
    hc_gpu_context before = hc_device_enter(p->device);
    status = say(p, begin(p, batch));
    hc_device_leave(p->device, before);
    return status;
}

static int test(hc_data *data) {
    hc__plane *p = (hc__plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, go_on(p));
    hc_device_leave(p->device, before);
    return status;
}

static int watch(hc_data *data) {
    hc__plane *p = (hc__plane *)data;
    if (!p->fast || p->comms.ended)
        return HC_OK;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__nccl_node_watch(p->node));
    hc_device_leave(p->device, before);
    return status < 0 ? status : HC_OK;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static int staging_open(hc_data *data, hc_staging *staging, int sends) {
    hc__plane *p = (hc__plane *)data;
    int status = p->device ? HC_OK : hc__plane_open_device(p);
    if (status < 0)
        return status;
    hc_gpu_context before = hc_device_enter(p->device);
    status = say(p, hc__p2p_buffer_open(&p->p2p_buffers, p->device, staging, sends));
    hc_device_leave(p->device, before);
    return status;
}

static int staging_test(hc_data *data, hc_staging *staging) {
    hc__plane *p = (hc__plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__p2p_buffer_test(&p->p2p_buffers, staging));
    hc_device_leave(p->device, before);
    return status;
}

static int staging_deliver(hc_data *data, hc_staging *staging) {
    hc__plane *p = (hc__plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = say(p, hc__p2p_buffer_deliver(&p->p2p_buffers, staging));
    hc_device_leave(p->device, before);
    return status;
}

static void staging_close(hc_data *data, hc_staging *staging) {
    hc__plane *p = (hc__plane *)data;
    hc_gpu_context before = hc_device_enter(p->device);
    hc__p2p_buffer_close(&p->p2p_buffers, staging);
    hc_device_leave(p->device, before);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void abandon(hc_data *data) {
    hc__plane *p = (hc__plane *)data;
    p->staged.batch = NULL;
    p->base.needs_polling = 0;
    hc__launch_slot_drop(&p->launch);
    if (!p->opened)
        return;
    hc_gpu_context before = hc_device_enter(p->device);
    if (p->fast)
        p->fast->ops->abandon(p->fast);
    hc__comms_abort(&p->comms);
    hc_device_leave(p->device, before);
}

static void free_own(hc__plane *p) {
    hc__device_config_drop(&p->config);
    hc__device_place_drop(&p->parts.place);
    free(p->group_of);
    free(p);
}

static void destroy(hc_data *data) {
    hc__plane *p = (hc__plane *)data;
    hc_gpu_context before = p->device ? hc_device_enter(p->device) : NULL;
    if (p->opened)
        hc__comms_close(&p->comms);
    if (p->fast) {
        hc__launch_slot_forget(&p->launch, p->node->done);
        hc__nccl_rows_close(&p->rows);
        p->fast->ops->free(p->fast);
    }
    hc__sums_close(&p->sums);
    hc__staged_close(&p->staged);
    hc__p2p_buffers_free(&p->p2p_buffers);
    if (p->device)
        hc_device_leave(p->device, before);
    if (!p->borrowed)
        hc_device_close(p->device);
    free_own(p);
}

static const struct hc_data_ops plane_ops = {
    .name = "device",
    .start = start,
    .test = test,
    .abandon = abandon,
    .free = destroy,
    .watch = watch,
    .staging_open = staging_open,
    .staging_test = staging_test,
    .staging_deliver = staging_deliver,
    .staging_close = staging_close,
};

const char *hc_device_data_facts(const hc_data *data) {
    return ((const hc__plane *)data)->facts;
}

uint64_t hc_device_data_count(const hc_data *data, enum hc_device_path way) {
    return ((const hc__plane *)data)->counts[way == HC_PATH_NCCL];
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

int hc_device_data_new(const hc_device_data_config *config, const hc_plane_parts *parts, hc_data **data) {
    const hc_hierarchy_config *place = &parts->place;
    int is_known = config->mode >= 0 && config->mode < HC_DEVICE_MODE_COUNT && config->gpu_aware.mode >= 0;
    *data = NULL;
    if (!is_known || (config->mode == HC_DEVICE_MPI && place->set_size > 1 && !parts->net))
        return HC_INVALID;
    hc__plane *p = calloc(1, sizeof *p);
    if (!p)
        return HC_NO_MEMORY;
    p->group_of = malloc((size_t)place->set_size * sizeof *p->group_of);
    p->parts = *parts;
    int copied = hc__device_config_copy(&p->config, config), placed = hc__device_place_copy(&p->parts.place, place);
    if (copied < 0 || placed < 0 || !p->group_of) {
        free_own(p);
        return HC_NO_MEMORY;
    }
    p->base.ops = &plane_ops;
    p->staged.host = parts->host;
    p->staged.rank = place->set_rank;
    p->staged.size = place->set_size;
    p->staged.world = p->parts.place.members;
    p->staged.chunk_bytes = place->chunk_bytes;
    hc__plane_place(p);
    p->launch = (hc__launch_slot){
        .order = place->set_size > 1 ? config->order : NULL, .host = parts->host, .set = place->set};
    *data = &p->base;
    return HC_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * comms.c - creates an NCCL communicator, watches it, ends it.
 */
#include "cuda/nccl/comms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FACTS, IDS, INIT, READY };
/* The facts of a rank: NCCL's version or -1, the GPU's PCI address, whether MPI may read its memory. */
enum { VERSION, PLACE, GPU_AWARE, NFACTS };
#define CLOSE_TRIES 3000 /* milliseconds */

uint64_t hc__comms_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- error texts ------------------------------------------------------------------------------------------------ */

/* "NCCL 2.28.9 on rank 3 (device 1, 0000:4b:00.0)" */
static int name(const hc__comms *c, char *text, size_t room) {
    char version[32];
    hc_nccl_version_text(c->nccl.version, version, sizeof version);
    return snprintf(text, room, "%s%s%srank %d (device %d, %s)", c->alone ? "" : "NCCL ", c->alone ? "" : version,
                    c->alone ? "" : " on ", c->rank, c->device->number, c->device->pci);
}

/* Writes NCCL's text for a status. */
static int failed(hc__comms *c, const char *call, int status) {
    const char *last = c->nccl.last_error ? c->nccl.last_error(c->comm) : NULL;
    int at = name(c, c->text, sizeof c->text);
    snprintf(c->text + at, sizeof c->text - (size_t)at, ": %s: %s (%d)%s%s", call, c->nccl.error_text(status), status,
             last && last[0] ? ": " : "", last ? last : "");
    return HC_TRANSPORT;
}

static int gave_up(hc__comms *c, const char *call) {
    int at = name(c, c->text, sizeof c->text);
    snprintf(c->text + at, sizeof c->text - (size_t)at,
             ": %s: nothing moved for %g s; one of its %d ranks does not come, or the network between them "
             "lets nothing "
             "through (NCCL_DEBUG=INFO says more)",
             call, (double)c->patience * 1e-9, c->group_size);
    return HC_TRANSPORT;
}

static int forbid(hc__comms *c) {
    c->forbidden = 1;
    c->stage = READY;
    return HC_DONE;
}

/* ---- facts ------------------------------------------------------------------------------------------------------ */

/* A PCI address such as "0000:4a:00.0" as a number. */
static int64_t place_number(const char *pci) {
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function);
    return (int64_t)domain << 16 | (int64_t)bus << 8 | (int64_t)device << 3 | function;
}

/* Starts an allgather of `bytes` per rank through the host. */
static int gather(hc__comms *c, const void *own, void *all, int64_t bytes) {
    c->piece = (hc_piece){
        .in = own, .out = all, .count = bytes, .row = bytes, .rows = 1, .scale = 1.0, .out_capacity = bytes * c->size};
    c->batch = (hc_batch){.operation = HC_ALLGATHER,
                          .reduction = HC_SUM,
                          .dtype = HC_UINT8,
                          .wire_dtype = HC_UINT8,
                          .root = -1,
                          .divisor = 1,
                          .count = bytes,
                          .npieces = 1,
                          .pieces = &c->piece};
    return c->host->ops->start(c->host, &c->batch);
}

void hc__comms_begin(hc__comms *c, const char *named, const char *const *files) {
    int status = c->alone ? HC_OK : hc_nccl_open(&c->nccl, named, files);
    c->facts = calloc(((size_t)c->size + 1) * NFACTS, sizeof *c->facts);
    c->ids = calloc((size_t)c->size + 1, sizeof *c->ids);
    c->stage = FACTS;
    c->group_rank = c->group_size = 0;
    for (int32_t r = 0; r < c->size; r++) {
        c->group_size += c->group_of[r] == c->group_of[c->rank];
        c->group_rank += c->group_of[r] == c->group_of[c->rank] && r < c->rank;
    }
    if (!c->facts)
        return;
    int64_t *own = c->facts + (size_t)c->size * NFACTS;
    own[VERSION] = status < 0 ? -1 : c->nccl.version;
    own[PLACE] = place_number(c->device->pci);
    own[GPU_AWARE] = c->gpu_aware;
}

static int64_t fact(const hc__comms *c, int32_t rank, int which) {
    return c->facts[(size_t)rank * NFACTS + (size_t)which];
}

static int judge_version(hc__comms *c, int32_t r) {
    char first[32], other[32];
    hc_nccl_version_text((int)fact(c, 0, VERSION), first, sizeof first);
    hc_nccl_version_text((int)fact(c, r, VERSION), other, sizeof other);
    if (fact(c, r, VERSION) < 0)
        snprintf(c->text, sizeof c->text,
                 "rank %d cannot open NCCL; `hpccoll info` there says what was tried, and what to do", r);
    else if (fact(c, r, VERSION) != fact(c, 0, VERSION))
        snprintf(c->text, sizeof c->text,
                 "rank 0 has NCCL %s and rank %d has NCCL %s; all ranks need the same one: "
                 "HPCCOLL_NCCL_LIBRARY names "
                 "its file",
                 first, r, other);
    else
        return 1;
    return 0;
}

/* NCCL refuses two ranks on one GPU, but does not name them. */
static int judge_place(hc__comms *c, int32_t r) {
    for (int32_t q = 0; q < r && !c->shares; q++) {
        int64_t at = fact(c, r, PLACE);
        if (c->node_of[q] != c->node_of[r] || at != fact(c, q, PLACE))
            continue;
        snprintf(c->text, sizeof c->text,
                 "ranks %d and %d are both on the GPU %04llx:%02llx:%02llx.%llx; NCCL needs one for each "
                 "rank: ask the "
                 "scheduler for a GPU a task, or choose the device by the local rank",
                 q, r, (unsigned long long)at >> 16, (unsigned long long)at >> 8 & 255,
                 (unsigned long long)at >> 3 & 31, (unsigned long long)at & 7);
        return 0;
    }
    return 1;
}

static void judge_gpu_aware(hc__comms *c) {
    c->against = -1;
    for (int32_t r = c->size; r-- > 0;)
        c->against = fact(c, r, GPU_AWARE) ? c->against : r;
}

static int begin_ids(hc__comms *c) {
    judge_gpu_aware(c);
    c->stage = READY;
    if (c->alone)
        return HC_DONE;
    for (int32_t r = 0; r < c->size; r++)
        if (!judge_version(c, r) || !judge_place(c, r))
            return forbid(c);
    hc_nccl_id *own = c->ids + c->size;
    memset(own, 0, sizeof *own);
    int status = c->group_rank == 0 ? c->nccl.get_id(own) : 0;
    if (status)
        return failed(c, "ncclGetUniqueId", status);
    c->stage = IDS;
    return gather(c, own, c->ids, sizeof *own);
}

/* ---- init ------------------------------------------------------------------------------------------------------- */

static int begin_init(hc__comms *c) {
    hc_nccl_config config = HC_NCCL_CONFIG;
    int32_t first = 0;
    config.blocking = 0;
    while (c->group_of[first] != c->group_of[c->rank])
        first++;
    int status = c->nccl.init(&c->comm, c->group_size, c->ids[first], c->group_rank, &config);
    c->stage = INIT;
    c->since = hc__comms_now();
    if (status && status != HC_NCCL_IN_PROGRESS) {
        c->comm = NULL;
        return failed(c, "ncclCommInitRankConfig", status);
    }
    return HC_MOVED;
}

int hc__comms_wait(hc__comms *c, const char *what) {
    int late = c->patience && hc__comms_now() - c->since > c->patience;
    return late ? gave_up(c, what) : HC_IDLE;
}

int hc__comms_settle(hc__comms *c, const char *call, int status) {
    if (c->alone)
        status = HC_NCCL_SUCCESS;
    if (status == HC_NCCL_IN_PROGRESS) {
        int asked = c->nccl.get_async_error(c->comm, &status);
        status = asked ? asked : status;
    }
    if (status == HC_NCCL_IN_PROGRESS)
        return hc__comms_wait(c, call);
    c->since = hc__comms_now();
    return status ? failed(c, call, status) : HC_DONE;
}

int hc__comms_test(hc__comms *c) {
    int status;
    if (!c->facts || !c->ids)
        return HC_NO_MEMORY;
    if (c->stage == FACTS && !c->batch.npieces)
        status = gather(c, c->facts + (size_t)c->size * NFACTS, c->facts, NFACTS * sizeof *c->facts);
    else if (c->stage == INIT)
        status = hc__comms_settle(c, "ncclCommInitRankConfig", HC_NCCL_IN_PROGRESS);
    else
        status = c->stage == READY ? HC_DONE : c->host->ops->test(c->host);
    if (status != HC_DONE || c->stage == READY)
        return status;
    if (c->stage == INIT) {
        c->stage = READY;
        return HC_DONE;
    }
    status = c->stage == FACTS ? begin_ids(c) : begin_init(c);
    return status < 0 || status == HC_DONE ? status : HC_MOVED;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void hc__comms_abort(hc__comms *c) {
    if (c->comm && !c->ended)
        c->nccl.abort(c->comm);
    c->ended = 1;
}

void hc__comms_close(hc__comms *c) {
    if (c->comm && !c->ended) {
        int status = c->nccl.finalize(c->comm);
        for (int i = 0; status == HC_NCCL_IN_PROGRESS && i < CLOSE_TRIES; i++) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            if (c->nccl.get_async_error(c->comm, &status))
                break;
        }
        if (status == HC_NCCL_SUCCESS)
            c->nccl.destroy(c->comm);
        else
            hc__comms_abort(c);
    }
    free(c->facts);
    free(c->ids);
    c->facts = NULL;
    c->ids = NULL;
    c->comm = NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * halo.c - plans of halo exchanges: their faces, and starts of them stage by stage.
 *
 * With corners, each dimension is a stage; without, all of them are one.
 */
#include "world/halo.h"
#include "world/halo_agreement.h"
#include "world/halo_sides.h"
#include "world/segments.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TAGS (2 * HC_MAX_DIMS) /* of one exchange */

/* Both sides of a neighbour's face. A face in shared memory has the one plan `sender`, which receives, too. */
typedef struct face {
    int32_t peer;
    int stage, side; /* side: 2d, or 2d + 1 for the upper one */
    hc__box send, recv;
    char *outgoing, *incoming; /* in the array; or, where it is strided, in memory of the plan */
    hc_plan *sender, *receiver;
    hc_handle *sent, *received;
} face;

struct hc_halo {
    const hc_halo_place *place; /* while it is made */
    hc_segment segment;
    hc_loop *loop;
    char *buffers;
    size_t packed;            /* bytes of `buffers` */
    int nfaces, ended, begun; /* faces that have ended and begun, in the start that runs */
    int status;               /* of this start, and its text */
    char text[HC_WHY];
    face faces[];
};

/* ---- make -------------------------------------------------------------------------------------------------- */

/* The number of this rank among those of its node. */
static int32_t local_of(const hc_job *job, int32_t rank) {
    int32_t local = 0;
    for (int32_t r = 0; r < rank; r++)
        local += job->node_of[r] == job->node_of[rank];
    return local;
}

static int make_message(const hc_halo *halo, const hc_halo_given *given, face *f, int receives) {
    const hc_halo_place *place = halo->place;
    hc_p2p_op op = {.receives = (uint8_t)receives,
                    .flags = receives ? HC_P2P_EXACT : 0,
                    .context = HC_P2P_LIBRARY,
                    .peer = place->members[f->peer],
                    .tag = given->number * TAGS + (uint32_t)(receives ? f->side ^ 1 : f->side),
                    .data = receives ? f->incoming : f->outgoing,
                    .bytes = receives ? f->recv.bytes : f->send.bytes};
    hc_p2p_name_type(&op, given->dtype, given->type);
    hc_handle **handle = receives ? &f->received : &f->sent;
    hc_plan **plan = receives ? &f->receiver : &f->sender;
    *handle = hc_handle_of_p2p(place->own.set, &op, HC_MEMORY_HOST);
    if (*handle)
        *plan = hc_plan_new(place->job->loop, *handle, place->own.size);
    return *plan ? HC_OK : HC_NO_MEMORY;
}

static hc_operand bytes_at(char *data, size_t bytes) {
    return (hc_operand){.data = data,
                        .count = (int64_t)bytes,
                        .bytes = (int64_t)bytes,
                        .dtype = HC_UINT8,
                        .ndim = 1,
                        .memory = HC_MEMORY_HOST,
                        .dims = {(int64_t)bytes}};
}

/* An allgather of two ranks, of which each takes only the other's part. */
static int make_pair(const hc_halo *halo, face *f, int64_t offset) {
    const hc_halo_place *place = halo->place;
    const hc_job *job = place->job;
    int upper = place->own.rank > f->peer;
    char name[64];
    int length = snprintf(name, sizeof name, "halo exchange with rank %d", (int)f->peer);
    hc_operand two[2] = {bytes_at(f->outgoing, f->send.bytes), bytes_at(f->incoming, f->recv.bytes)};
    hc_arguments arguments = hc_arguments_of(HC_ALLGATHER);
    arguments.n = 1;
    arguments.operands = two;
    f->sent = hc_arguments_request(&arguments, &place->own, name, (size_t)length);
    if (!f->sent)
        return HC_NO_MEMORY;
    f->sent->kind = HC_HANDLE_PLAN;
    f->sender = hc_plan_new(job->loop, f->sent, 2);
    if (!f->sender)
        return HC_NO_MEMORY;
    hc_stream_read reads[2] = {{0}};
    reads[!upper] = (hc_stream_read){.out = f->incoming, .bytes = (int64_t)f->recv.bytes};
    const hc_flat_config config = {.batch = hc_plan_batch(f->sender),
                                   .source = -1,
                                   .target = -1,
                                   .reads = reads,
                                   .slot_bytes = f->send.bytes,
                                   .borrows = 1};
    int32_t locals[2];
    locals[upper] = local_of(job, job->rank);
    locals[!upper] = local_of(job, place->members[f->peer]);
    hc_segment part = {
        .base = (char *)halo->segment.base + offset, .bytes = hc_flat_bytes(2, config.slot_bytes), .fd = -1};
    hc_data *data = NULL;
    int status = hc_flat_new(&config, part, job->node_control, locals, upper, 2, &data);
    if (status >= 0)
        hc_plan_use(f->sender, data, 1);
    return status;
}

/* Adds the faces that there are, without their plans. Returns the bytes of the buffers that they need. */
static size_t add_faces(hc_halo *halo, const hc_halo_given *given, const uint8_t *order) {
    size_t bytes = 0;
    for (int d = 0; d < given->grid->ndim; d++) {
        int32_t peers[2];
        hc_grid_shift(given->grid, halo->place->own.rank, d, 1, peers);
        for (int upper = 0; upper < 2; upper++) {
            if (!given->widths[d] || peers[upper] < 0)
                continue;
            face *f = &halo->faces[halo->nfaces++];
            *f = (face){.peer = peers[upper], .stage = given->corners ? d : 0, .side = 2 * d + upper};
            hc__box_make(given, order, d, upper, HC__SIDE, &f->send);
            hc__box_make(given, order, d, upper, HC__HALO, &f->recv);
            bytes += (f->send.ndim ? f->send.bytes : 0) + (f->recv.ndim ? f->recv.bytes : 0);
        }
    }
    return bytes;
}

static char *buffer_for(const hc__box *box, char **free_from) {
    char *at = box->ndim ? *free_from : box->data;
    *free_from += box->ndim ? box->bytes : 0;
    return at;
}

/* Makes the plans of all faces. */
static int make_faces(hc_halo *halo, const hc_halo_given *given, const hc__halo_terms *terms) {
    uint8_t order[HC_MAX_DIMS];
    for (int d = 0; d < given->ndim; d++)
        order[d] = (uint8_t)d;
    if (terms->is_ordered)
        hc__halo_order(given, order);
    halo->packed = add_faces(halo, given, order);
    char *free_from = halo->buffers = malloc(halo->packed + 1);
    int status = halo->buffers ? HC_OK : HC_NO_MEMORY;
    for (int i = 0; i < halo->nfaces && status >= 0; i++) {
        face *f = &halo->faces[i];
        int64_t offset = terms->places[f->side];
        f->outgoing = buffer_for(&f->send, &free_from);
        f->incoming = buffer_for(&f->recv, &free_from);
        if (offset >= 0) {
            status = make_pair(halo, f, offset);
            continue;
        }
        status = make_message(halo, given, f, 1);
        if (status >= 0)
            status = make_message(halo, given, f, 0);
    }
    return status;
}

static hc_halo *new_halo(const hc_halo_place *place, const hc_halo_given *given) {
    hc_halo *halo = calloc(1, sizeof *halo + 2 * (size_t)given->grid->ndim * sizeof(face));
    if (halo) {
        halo->place = place;
        halo->loop = place->job->loop;
        halo->segment.fd = -1;
    }
    return halo;
}

static int give(hc_halo *halo, int status, hc_halo **out) {
    if (status < 0) {
        hc_halo_free(halo);
        return status;
    }
    halo->place = NULL;
    halo->begun = halo->ended = halo->nfaces;
    *out = halo;
    return HC_OK;
}

/* Makes the segment of each node. */
static int make_segment(const hc_halo_place *place, const hc__halo_terms *terms, const hc_exchange *exchange,
                        hc_segment *segment, char why[HC_WHY]) {
    char what[32];
    *segment = (hc_segment){.fd = -1};
    if (!terms->segment_bytes)
        return HC_OK;
    snprintf(what, sizeof what, "halo-%" PRIu32, terms->generation);
    int status = hc_members_segment(place->job, exchange, what, place->members, place->own.size, terms->segment_bytes,
                                    segment, why);
    hc_segment_close_file(segment); /* a program may have more plans than files */
    return status;
}

/* Notes the memory of the sides. NULL: no memory. */
static hc_plan_memory *note_memory(const hc_halo *halo, hc_plan_memories *memories) {
    size_t n = 0;
    for (int i = 0; i < halo->nfaces; i++)
        n += hc__box_extents(&halo->faces[i].send, 0, NULL) + hc__box_extents(&halo->faces[i].recv, 1, NULL);
    int is_compared = n <= HC_HALO_RUNS;
    n = is_compared ? n : 0;
    hc_extent *extents = malloc((n + 1) * sizeof *extents), *next = extents;
    hc_plan_memory *memory = NULL;
    for (int i = 0; i < halo->nfaces && extents && is_compared; i++) {
        next += hc__box_extents(&halo->faces[i].send, 0, next);
        next += hc__box_extents(&halo->faces[i].recv, 1, next);
    }
    if (extents)
        memory = hc_plan_memory_new(memories, extents, n, -1, "a halo exchange");
    free(extents);
    return memory;
}

int hc_halo_new(const hc_halo_place *place, const hc_halo_given *given, const hc_exchange *exchange, int refused,
                hc_halo **out, hc_plan_memory **memory, char why[HC_WHY]) {
    hc__halo_terms terms;
    hc_segment segment;
    *out = NULL;
    *memory = NULL;
    int status = hc__halo_agree(place, given, exchange, refused, &terms, why);
    if (status < 0)
        return status;
    hc_job_note_generation(place->job, terms.generation);
    status = make_segment(place, &terms, exchange, &segment, why);
    if (status < 0)
        return status;
    hc_halo *halo = new_halo(place, given);
    int made = HC_NO_MEMORY;
    if (halo) {
        halo->segment = segment;
        made = make_faces(halo, given, &terms);
        *memory = made < 0 ? NULL : note_memory(halo, &place->job->plans);
        made = made < 0 || *memory ? made : HC_NO_MEMORY;
    } else {
        hc_segment_close(&segment);
    }
    status = hc_exchange_agree(exchange, made, "no memory for a plan of a halo exchange", why);
    if (status < 0 && *memory) {
        hc_plan_memory_free(&place->job->plans, *memory);
        *memory = NULL;
    }
    return give(halo, status, out);
}

int hc_halo_alone(const hc_halo_place *place, const hc_halo_given *given, hc_halo **out, char why[HC_WHY]) {
    hc__halo_terms terms = {0};
    *out = NULL;
    memset(terms.places, 0xff, sizeof terms.places);
    int status = hc_halo_check(given, why);
    if (status < 0)
        return status;
    hc_halo *halo = new_halo(place, given);
    status = give(halo, halo ? make_faces(halo, given, &terms) : HC_NO_MEMORY, out);
    return status < 0 ? hc__refuse(why, status, "no memory for a halo exchange; nothing was sent") : status;
}

void hc_halo_free(hc_halo *halo) {
    if (!halo)
        return;
    for (int i = 0; i < halo->nfaces; i++) {
        face *f = &halo->faces[i];
        hc_plan_free(f->receiver);
        hc_plan_free(f->sender);
        if (f->received)
            hc_handle_release(f->received);
        if (f->sent)
            hc_handle_release(f->sent);
    }
    hc_segment_close(&halo->segment);
    free(halo->buffers);
    free(halo);
}

/* ---- start and wait ---------------------------------------------------------------------------------------- */

/* `handle` NULL: it was not started. */
static void note_failure(hc_halo *halo, const face *f, const hc_handle *handle, int status) {
    if (status >= 0 || halo->status < 0)
        return;
    const char *text = handle ? handle->text : status == HC_BROKEN ? hc_loop_broken_text(halo->loop) : NULL;
    text = text ? text : hc_status_text(status);
    halo->status = status;
    if (handle && handle->op && status == HC_RESULT_SIZE)
        snprintf(halo->text, sizeof halo->text,
                 "halo_exchange: a message of %" PRIu64 " bytes came for a receive of %" PRIu64
                 " bytes from rank %d, whose side has another size than the halo here",
                 handle->op->received, handle->op->bytes, (int)f->peer);
    else
        snprintf(halo->text, sizeof halo->text, "%.*s", (int)sizeof halo->text - 1, text);
}

/* 1: the plan was started; the first failure is noted. */
static int begin(hc_halo *halo, const face *f, hc_plan *plan, int waits) {
    int status = hc_plan_start(plan, waits);
    note_failure(halo, f, NULL, status);
    return status >= 0;
}

/* The number of faces from this one on that are packed together: both of its dimension, or 1. */
static int together(const hc_halo *halo, int i) {
    const face *f = &halo->faces[i];
    return i + 1 < halo->begun && f[1].side / 2 == f->side / 2 ? 2 : 1;
}

static void pack(const face *f, int n) {
    if (f->send.ndim)
        hc__boxes_pack(&f->send, f->outgoing, n > 1 ? &f[1].send : NULL, n > 1 ? f[1].outgoing : NULL);
}

static void unpack(const face *f, int n) {
    if (f->recv.ndim)
        hc__boxes_unpack(&f->recv, f->incoming, n > 1 ? &f[1].recv : NULL, n > 1 ? f[1].incoming : NULL);
}

/* Begins the next stage: all its receives, then its sends. Returns how many plans were started. */
static int begin_stage(hc_halo *halo, int waits) {
    int first = halo->begun, started = 0;
    while (halo->begun < halo->nfaces && halo->faces[halo->begun].stage == halo->faces[first].stage) {
        const face *f = &halo->faces[halo->begun++];
        if (f->receiver)
            started += begin(halo, f, f->receiver, waits);
    }
    for (int i = first, n; i < halo->begun; i += n) {
        n = together(halo, i);
        pack(&halo->faces[i], n);
        for (int k = i; k < i + n; k++)
            started += begin(halo, &halo->faces[k], halo->faces[k].sender, waits);
    }
    return started;
}

int hc_halo_start(hc_halo *halo, int waits) {
    halo->begun = halo->ended = 0;
    halo->status = HC_OK;
    if (!begin_stage(halo, waits) && halo->status < 0) {
        halo->begun = halo->ended = halo->nfaces;
        return halo->status;
    }
    return HC_OK;
}

typedef int is_over(hc_plan *, uint64_t ns);

static int is_face_over(hc_halo *halo, const face *f, is_over *over, uint64_t ns) {
    if ((f->receiver && !over(f->receiver, ns)) || !over(f->sender, ns))
        return 0;
    if (f->received)
        note_failure(halo, f, f->received, f->received->status);
    note_failure(halo, f, f->sent, f->sent->status);
    return 1;
}

/* Ends faces and begins stages as far as `over` allows. An error ends no stage early, nor the stages after it: the
 * neighbours there have no part in it, and would wait. 1: over. */
static int advance(hc_halo *halo, is_over *over, uint64_t ns) {
    while (halo->ended < halo->nfaces) {
        if (halo->ended == halo->begun)
            begin_stage(halo, 1);
        int n = together(halo, halo->ended);
        for (int i = halo->ended; i < halo->ended + n; i++)
            if (!is_face_over(halo, &halo->faces[i], over, ns))
                return 0;
        if (halo->status >= 0)
            unpack(&halo->faces[halo->ended], n);
        halo->ended += n;
    }
    return 1;
}

static int is_tested(hc_plan *plan, uint64_t ns) {
    (void)ns;
    return hc_plan_test(plan);
}

static int is_polled(hc_plan *plan, uint64_t ns) {
    (void)ns;
    return hc_plan_poll(plan);
}

static int is_awaited(hc_plan *plan, uint64_t ns) {
    return hc_plan_poll(plan) || hc_plan_wait(plan, ns);
}

int hc_halo_test(hc_halo *halo) {
    return advance(halo, is_tested, 0);
}

int hc_halo_poll(hc_halo *halo) {
    return advance(halo, is_polled, 0);
}

int hc_halo_wait(hc_halo *halo, uint64_t ns) {
    return advance(halo, is_awaited, ns);
}

size_t hc_halo_packed(const hc_halo *halo) {
    return halo->packed;
}

int hc_halo_status(const hc_halo *halo, const char **text) {
    *text = halo->status < 0 ? halo->text : "";
    return halo->status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.c - point-to-point messages of hpccoll.h.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/list.h"
#include "api/messages.h"
#include "api/requests.h"

static int check(const void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag,
                 const hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    if ((unsigned)dtype >= HC_DTYPE_COUNT || count < 0 || count > HC_MAX_ELEMENTS || (!data && count))
        return hc__error(HC_INVALID, "%s: data is NULL, count is negative or too large, or dtype is no hpccoll_dtype",
                         receives ? "recv" : "send");
    if (peer != HPCCOLL_PROC_NULL && (peer < (receives ? HPCCOLL_ANY_SOURCE : 0) || peer >= world->size))
        return hc__error(HC_INVALID, "%s is %d: the World has ranks 0 to %d%s, and HPCCOLL_PROC_NULL is -2",
                         receives ? "source" : "dest", peer, (int)world->size - 1,
                         receives ? ", HPCCOLL_ANY_SOURCE is -1" : "");
    if (tag < (receives ? HPCCOLL_ANY_TAG : 0))
        return hc__error(HC_INVALID, "tag is %d: a tag is not negative%s", tag,
                         receives ? ", and HPCCOLL_ANY_TAG is -1" : "");
    return HC_OK;
}

int hc__message_handle(void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag,
                       const hpccoll_world *world, hc_handle **h) {
    int status = check(data, count, dtype, receives, peer, tag, world);
    if (status < 0)
        return status;
    _Static_assert(HPCCOLL_ANY_SOURCE == HC_ANY_PEER && HPCCOLL_PROC_NULL == HC_NO_PEER, "passed on as they are");
    hc_p2p_op op = {.receives = (uint8_t)receives,
                    .peer = peer < 0 ? peer : world->members[peer],
                    .flags = tag == HPCCOLL_ANY_TAG ? HC_P2P_ANY_TAG : 0,
                    .tag = tag < 0 ? 0 : (uint32_t)tag,
                    .data = data,
                    .bytes = (uint64_t)count * hc_dtype_size((int)dtype)};
    int memory = HC_MEMORY_HOST;
    hc_p2p_name_type(&op, (int)dtype, NULL);
    if (world->base->devices.on && op.bytes)
        status = hc__devices_place_one(world, data, receives ? "recv: data" : "send: data", &memory);
    if (status < 0)
        return status;
    *h = hc_handle_of_p2p(world->number, &op, memory);
    return *h ? HC_OK : hc__error(HC_NO_MEMORY, "no memory for a message; nothing was sent");
}

/* Checks the message and records its memory as in flight. `h` NULL: the caller waits, so there is nothing to record. */
static int note_memory(const hc_p2p_op *op, const hpccoll_world *world, hc_handle *h) {
    const char *data = op->data;
    hc_extent extent = {.begin = data, .end = data + op->bytes, .writes = op->receives};
    hc_claim claim = {.extents = &extent, .n = 1, .operation = -1, .handle = h};
    if (!h && hc__nothing_in_flight(world))
        return HC_OK;
    int status = hc_in_flight_claim(&world->base->job->in_flight, &claim);
    if (status == HC_INVALID)
        hc__error(status, "%s shares memory with an array of %s, which is in flight: wait for that one first",
                  op->receives ? "recv" : "send", claim.its);
    else if (status < 0)
        hc__error(status, "no memory for a message; nothing was sent");
    return status;
}

static void submit(const hpccoll_world *world, hc_handle *h, int waits) {
    world->base->calls.submit(world->base->job->loop, h, waits);
}

static void await(hpccoll_world *world, hc_handle *h) {
    while (!hc__await(world, h, UINT64_MAX)) {}
}

/* Frees a message that was not submitted, because of an error. */
static void drop(const hpccoll_world *world, hc_handle *h, int status) {
    if (h->finished)
        hc__devices_end(world, h, status);
    hc_handle_release(h);
}

/* Makes all checks, and the handle of a message that is not submitted yet. */
static int prepare(void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag, int waits,
                   hpccoll_world *world, hc_handle **h) {
    int status = hc__message_handle(data, count, dtype, receives, peer, tag, world, h);
    if (status < 0)
        return status;
    status = (*h)->request.memory == HC_MEMORY_HOST ? HC_OK : hc__devices_order(world, *h);
    if (status >= 0)
        status = note_memory((*h)->op, world, waits ? NULL : *h);
    if (status < 0)
        drop(world, *h, status);
    return status;
}

static int begin(void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag, int waits,
                 hpccoll_world *world, hc_handle **h) {
    int status = prepare(data, count, dtype, receives, peer, tag, waits, world, h);
    if (status >= 0)
        submit(world, *h, waits);
    return status;
}

static int async(void *data, int64_t count, hpccoll_dtype dtype, int receives, int peer, int tag, int *from,
                 int64_t *received, hpccoll_world *world, hpccoll_request **request) {
    hc_handle *h;
    if (!request)
        return hc__error(HC_INVALID, "request is NULL");
    *request = NULL;
    hpccoll_request *made = hc__request_new(world);
    if (!made)
        return hc__error(HC_NO_MEMORY, "no memory for a message; nothing was sent");
    int status = begin(data, count, dtype, receives, peer, tag, 0, world, &h);
    if (status < 0) {
        hc__request_drop(made);
        return status;
    }
    hc__request_hold(made, h, received, from);
    hc__request_element(made, hc_dtype_size((int)dtype));
    *request = made;
    return HC_OK;
}

int hpccoll_send(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag, hpccoll_world *world) {
    hc_handle *h;
    int status = begin((void *)(uintptr_t)data, count, dtype, 0, dest, tag, 1, world, &h);
    if (status < 0)
        return status;
    await(world, h);
    return hc__outcome(world, h, NULL);
}

int hpccoll_recv(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from, int64_t *received,
                 hpccoll_world *world) {
    hc_handle *h;
    int status = begin(data, count, dtype, 1, source, tag, 1, world, &h);
    if (status < 0)
        return status;
    await(world, h);
    hc__note_message(world, h, hc_dtype_size((int)dtype), from, received);
    return hc__outcome(world, h, NULL);
}

/* OK, or INVALID (error set): what comes in would change what goes out. */
static int check_apart(const hc_p2p_op *send, const hc_p2p_op *receive) {
    const char *in = send->data, *out = receive->data;
    int overlap = send->bytes && receive->bytes && in < out + receive->bytes && out < in + send->bytes;
    if (!overlap || send->peer == HC_NO_PEER || receive->peer == HC_NO_PEER)
        return HC_OK;
    return hc__error(HC_INVALID, "in and out of sendrecv share memory: what comes in would change what goes out; "
                                 "nothing was sent");
}

/* Posts the send first: the other rank waits for it. */
int hpccoll_sendrecv(const void *in, int64_t count, hpccoll_dtype dtype, int dest, int sendtag, void *out,
                     int64_t out_count, int source, int recvtag, int *from, int64_t *received, hpccoll_world *world) {
    hc_handle *send, *receive;
    int status = prepare((void *)(uintptr_t)in, count, dtype, 0, dest, sendtag, 1, world, &send);
    if (status < 0)
        return status;
    status = prepare(out, out_count, dtype, 1, source, recvtag, 1, world, &receive);
    if (status < 0) {
        drop(world, send, status);
        return status;
    }
    status = check_apart(send->op, receive->op);
    if (status < 0) {
        drop(world, send, status);
        drop(world, receive, status);
        return status;
    }
    submit(world, send, 1);
    submit(world, receive, 1);
    await(world, send);
    await(world, receive);
    hc__note_message(world, receive, hc_dtype_size((int)dtype), from, received);
    int sent = hc__outcome(world, send, NULL);
    status = hc__outcome(world, receive, NULL);
    return status < 0 ? status : sent;
}

/* OK, and *there says whether there is a message; or a status (error set). */
static int probe(int source, int tag, int flags, int *there, int *from, int *found_tag, int64_t *bytes,
                 hpccoll_world *world) {
    hc_handle *h;
    int status = hc__message_handle(NULL, 0, HPCCOLL_UINT8, 1, source, tag, world, &h);
    if (status < 0)
        return status;
    h->op->flags |= (uint8_t)(HC_P2P_PROBE | flags);
    submit(world, h, 1);
    await(world, h);
    *there = h->status >= 0 && h->op->peer != HC_ANY_PEER;
    if (*there) {
        hc__note_message(world, h, 1, from, bytes);
        if (found_tag)
            *found_tag = h->op->peer == HC_NO_PEER ? HPCCOLL_ANY_TAG : (int)h->op->tag;
    }
    return hc__outcome(world, h, NULL);
}

int hpccoll_probe(int source, int tag, int *from, int *found_tag, int64_t *bytes, hpccoll_world *world) {
    int there;
    return probe(source, tag, 0, &there, from, found_tag, bytes, world);
}

int hpccoll_iprobe(int source, int tag, int *there, int *from, int *found_tag, int64_t *bytes, hpccoll_world *world) {
    if (!there)
        return hc__error(HC_INVALID, "there is NULL");
    *there = 0;
    return probe(source, tag, HC_P2P_PROBE_NOW, there, from, found_tag, bytes, world);
}

int hpccoll_send_async(const void *data, int64_t count, hpccoll_dtype dtype, int dest, int tag, hpccoll_world *world,
                       hpccoll_request **request) {
    return async((void *)(uintptr_t)data, count, dtype, 0, dest, tag, NULL, NULL, world, request);
}

int hpccoll_recv_async(void *data, int64_t count, hpccoll_dtype dtype, int source, int tag, int *from,
                       int64_t *received, hpccoll_world *world, hpccoll_request **request) {
    return async(data, count, dtype, 1, source, tag, from, received, world, request);
}

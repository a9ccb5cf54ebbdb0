/* SPDX-License-Identifier: Apache-2.0
 *
 * over_net.c - the rendezvous over a net, which is MPI's. Waits have a limit, and the error names missing ranks.
 *
 * Each rank sends its value to rank 0, which therefore knows the missing ranks. When all values are in, the answer goes
 * down a binomial tree. At the limit rank 0 sends the error to all ranks. Ranks other than 0 wait some seconds longer,
 * so that they get this error.
 */
#include "rendezvous/kinds.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOON (2000000ull) /* ns; after this time a rank sleeps between two tests */
#define PAUSE_US 200
#define LEAST_BYTES 8192 /* a rank of another version may send more than this rank expects */

enum { VALUE_TAG = 0x4843, ANSWER_TAG = 0x4844 }; /* below the smallest tag limit that the MPI standard allows */
enum { VALUE = 1, ANSWER, VERDICT };

typedef struct message {
    char version[16];
    uint32_t number; /* of the exchange */
    uint32_t kind;
    uint64_t bytes;
} message;

typedef struct over_net {
    hc_rendezvous base;
    hc_net *net;
    uint32_t number; /* exchanges so far */
} over_net;

static void pause_a_little(uint64_t began) {
    if (hc__now_ns() - began < SOON)
        sched_yield();
    else
        usleep(PAUSE_US);
}

static void *pack(const over_net *r, int kind, const void *data, size_t bytes) {
    message head = {.number = r->number, .kind = (uint32_t)kind, .bytes = bytes};
    snprintf(head.version, sizeof head.version, "%s", r->base.version);
    char *packed = malloc(sizeof head + bytes);
    if (packed) {
        memcpy(packed, &head, sizeof head);
        memcpy(packed + sizeof head, data, bytes);
    }
    return packed;
}

static int net_failed(over_net *r, int status) {
    snprintf(r->base.why, sizeof r->base.why, "MPI failed: %s", r->net->text ? r->net->text : hc_status_text(status));
    return status;
}

/* Sends to each rank of a list, and waits for the sends until the time `limit`. */
static int send_to(over_net *r, const int32_t *ranks, int32_t n, const void *packed, size_t bytes, int tag,
                   uint64_t limit) {
    hc_net_request **requests = calloc((size_t)n + 1, sizeof(hc_net_request *));
    int status = requests ? HC_OK : HC_NO_MEMORY;
    int32_t left = 0;
    uint64_t began = hc__now_ns();
    for (int32_t i = 0; i < n && status >= 0; i++)
        status = r->net->ops->isend(r->net, ranks[i], tag, packed, bytes, &requests[i]);
    do {
        left = 0;
        for (int32_t i = 0; i < n && status >= 0; i++) {
            if (requests[i])
                status = r->net->ops->test(r->net, &requests[i], NULL, NULL);
            left += requests[i] != NULL;
        }
        if (left && status >= 0)
            pause_a_little(began);
    } while (left && status >= 0 && hc__now_ns() < limit);
    for (int32_t i = 0; requests && i < n; i++)
        if (requests[i])
            r->net->ops->cancel(r->net, &requests[i]);
    free(requests);
    return status < 0 ? status : HC_OK;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------ */

static int send_verdict(over_net *r) {
    int32_t *ranks = malloc((size_t)r->base.size * sizeof *ranks);
    void *packed = pack(r, VERDICT, r->base.why, sizeof r->base.why);
    for (int32_t i = 1; ranks && i < r->base.size; i++)
        ranks[i - 1] = i;
    if (ranks && packed)
        send_to(r, ranks, r->base.size - 1, packed, sizeof(message) + sizeof r->base.why, ANSWER_TAG,
                hc__now_ns() + HC__SECOND);
    free(packed);
    free(ranks);
    return HC_TRANSPORT;
}

/* Checks a received value. 1: it counts; 0: it belongs to an earlier attempt; or a status. */
static int take_value(over_net *r, const char *packed, size_t came, int32_t peer, size_t bytes) {
    message head;
    memcpy(&head, packed, sizeof head < came ? sizeof head : came);
    if (came < sizeof head || strncmp(head.version, r->base.version, sizeof head.version) != 0)
        return hc__other_version(&r->base, peer, came < sizeof head ? "" : head.version);
    if (head.number < r->number)
        return 0;
    if (head.number != r->number || head.bytes != bytes || came != sizeof head + bytes) {
        snprintf(r->base.why, sizeof r->base.why,
                 "rank %d is at step %u of the start, rank 0 at %u: all ranks make the same "
                 "Worlds in the same order",
                 (int)peer, head.number, r->number);
        return HC_TRANSPORT;
    }
    return 1;
}

static int collect(over_net *r, uint8_t *here, char *packed, size_t room, size_t bytes, char *all) {
    uint64_t began = hc__now_ns(), reported = began;
    hc_net_request *request = NULL;
    for (int32_t left = r->base.size - 1; left > 0;) {
        size_t came = 0;
        int32_t peer = -1;
        int status = HC_OK, late = hc__now_ns() - began > r->base.timeout; /* before test(): a value in time counts */
        if (!request)
            status = r->net->ops->irecv(r->net, HC_ANY_PEER, VALUE_TAG, packed, room, &request);
        if (status >= 0)
            status = r->net->ops->test(r->net, &request, &came, &peer);
        if (status < 0)
            return net_failed(r, status);
        if (status == HC_DONE && (status = take_value(r, packed, came, peer, bytes)) < 0)
            return status;
        else if (!request && status == 1 && !here[peer]) {
            memcpy(all + (size_t)peer * bytes, packed + sizeof(message), bytes);
            here[peer] = 1;
            left--;
        }
        if (!request)
            continue;
        if (late) {
            r->net->ops->cancel(r->net, &request);
            return hc__ranks_missing(&r->base, here);
        }
        hc__report_missing(&r->base, here, &reported);
        pause_a_little(began);
    }
    return HC_OK;
}

/* ---- other ranks ------------------------------------------------------------------------------------------- */

static int await_answer(over_net *r, char *packed, size_t room, size_t bytes) {
    uint64_t began = hc__now_ns(), limit = r->base.timeout + HC__GRACE;
    for (;;) {
        hc_net_request *request = NULL;
        size_t came = 0;
        message head;
        int status = r->net->ops->irecv(r->net, HC_ANY_PEER, ANSWER_TAG, packed, room, &request);
        while (status >= 0 && request) {
            int late = hc__now_ns() - began > limit;
            status = r->net->ops->test(r->net, &request, &came, NULL);
            if (status >= 0 && request && late) {
                r->net->ops->cancel(r->net, &request);
                return hc__root_missing(&r->base);
            }
            if (request)
                pause_a_little(began);
        }
        if (status < 0)
            return net_failed(r, status);
        memcpy(&head, packed, sizeof head);
        if (head.kind == VERDICT) {
            snprintf(r->base.why, sizeof r->base.why, "%s", packed + sizeof head);
            return HC_TRANSPORT;
        }
        if (head.number == r->number && head.bytes == bytes)
            return HC_OK;
    }
}

/* ---- all ranks --------------------------------------------------------------------------------------------- */

static int send_down(over_net *r, const void *packed, size_t bytes) {
    int32_t children[32], n = 0, mask = 1;
    while (mask < r->base.size && !(r->base.rank & mask))
        mask <<= 1;
    for (mask >>= 1; mask > 0; mask >>= 1)
        if (r->base.rank + mask < r->base.size)
            children[n++] = r->base.rank + mask;
    int status = send_to(r, children, n, packed, bytes, ANSWER_TAG, hc__now_ns() + r->base.timeout);
    return status < 0 ? net_failed(r, status) : HC_OK;
}

static int lead(over_net *r, const void *mine, size_t bytes, char *all) {
    size_t room = sizeof(message) + (bytes > LEAST_BYTES ? bytes : LEAST_BYTES);
    char *packed = malloc(room);
    uint8_t *here = calloc((size_t)r->base.size, 1);
    int status = packed && here ? HC_OK : HC_NO_MEMORY;
    if (status == HC_OK) {
        here[0] = 1;
        memcpy(all, mine, bytes);
        status = collect(r, here, packed, room, bytes, all);
        if (status < 0)
            status = send_verdict(r);
    }
    free(here);
    free(packed);
    return status;
}

static int follow(over_net *r, const void *mine, size_t bytes, char *packed, size_t room, size_t total) {
    const int32_t root = 0;
    uint64_t limit = hc__now_ns() + r->base.timeout + HC__GRACE;
    void *value = pack(r, VALUE, mine, bytes);
    int status = value && packed ? send_to(r, &root, 1, value, sizeof(message) + bytes, VALUE_TAG, limit)
                                 : HC_NO_MEMORY;
    free(value);
    return status < 0 ? net_failed(r, status) : await_answer(r, packed, room, total);
}

static int allgather(hc_rendezvous *base, const void *mine, size_t bytes, void *all) {
    over_net *r = (over_net *)base;
    size_t total = bytes * (size_t)base->size;
    size_t room = sizeof(message) + (total > sizeof base->why ? total : sizeof base->why);
    int status = HC_OK;
    char *packed = NULL;
    if (base->rank == 0) {
        status = lead(r, mine, bytes, all);
        packed = status == HC_OK ? pack(r, ANSWER, all, total) : NULL;
    } else {
        packed = malloc(room);
        status = follow(r, mine, bytes, packed, room, total);
        if (status == HC_OK)
            memcpy(all, packed + sizeof(message), total);
    }
    if (status == HC_OK)
        status = packed ? send_down(r, packed, sizeof(message) + total) : HC_NO_MEMORY;
    free(packed);
    r->number++;
    return status;
}

static const hc_rendezvous_ops over_net_ops = {allgather, NULL, ""};

int hc_rendezvous_over_net(hc_net *net, const hc_rendezvous_terms *terms, hc_rendezvous **made,
                           char why[HC_RENDEZVOUS_WHY]) {
    over_net *r = hc__rendezvous_new(sizeof *r, &over_net_ops, terms, why);
    if (!r)
        return HC_NO_MEMORY;
    r->base.rank = net->rank;
    r->base.size = net->size;
    r->net = net;
    *made = &r->base;
    return HC_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.c - exchanges of the ranks before there is a World. Waits have a limit, and the error names missing ranks.
 *
 * Each rank sends its value to rank 0, which therefore knows the missing ranks. When all values are in, the answer goes
 * down a binomial tree. At the limit rank 0 sends the error to all ranks. Ranks other than 0 wait some seconds longer,
 * so that they get this error.
 */
#include "api/hpccoll.h"
#include "api/rendezvous.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define GRACE (5 * SECOND)
#define REPORT_EVERY (10 * SECOND)
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

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void pause_a_little(uint64_t began) {
    if (now_ns() - began < SOON)
        sched_yield();
    else
        usleep(PAUSE_US);
}

static void *pack(const hc__rendezvous *r, int kind, const void *data, size_t bytes) {
    message head = {.version = HPCCOLL_VERSION, .number = r->number, .kind = (uint32_t)kind, .bytes = bytes};
    char *packed = malloc(sizeof head + bytes);
    if (packed) {
        memcpy(packed, &head, sizeof head);
        memcpy(packed + sizeof head, data, bytes);
    }
    return packed;
}

static int net_failed(hc__rendezvous *r, int status) {
    snprintf(r->why, sizeof r->why, "MPI failed: %s", r->net->text ? r->net->text : hc_status_text(status));
    return status;
}

/* Sends to each rank of a list, and waits for the sends until the time `limit`. */
static int send_to(hc__rendezvous *r, const int32_t *ranks, int32_t n, const void *packed, size_t bytes, int tag,
                   uint64_t limit) {
    hc_net_request **requests = calloc((size_t)n + 1, sizeof(hc_net_request *));
    int status = requests ? HC_OK : HC_NO_MEMORY;
    int32_t left = 0;
    uint64_t began = now_ns();
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
    } while (left && status >= 0 && now_ns() < limit);
    for (int32_t i = 0; requests && i < n; i++)
        if (requests[i])
            r->net->ops->cancel(r->net, &requests[i]);
    free(requests);
    return status < 0 ? status : HC_OK;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------ */

/* "ranks 1, 2, 5 and 3 more" */
static void name_missing(const hc__rendezvous *r, const uint8_t *here, char *text, size_t room) {
    int32_t missing = 0, named = 0;
    size_t at = 0;
    char who[HC_WHO];
    text[0] = 0;
    for (int32_t rank = 0; rank < r->size; rank++)
        missing += !here[rank];
    for (int32_t rank = 0; rank < r->size && named < 8 && at < room; rank++) {
        if (!here[rank])
            at += (size_t)snprintf(text + at, room - at, "%s%s", named++ ? ", " : "", hc_who(r->processes, rank, who));
    }
    if (missing > named && at < room)
        snprintf(text + at, room - at, " and %d more", (int)(missing - named));
}

static int send_verdict(hc__rendezvous *r) {
    int32_t *ranks = malloc((size_t)r->size * sizeof *ranks);
    void *packed = pack(r, VERDICT, r->why, sizeof r->why);
    for (int32_t i = 1; ranks && i < r->size; i++)
        ranks[i - 1] = i;
    if (ranks && packed)
        send_to(r, ranks, r->size - 1, packed, sizeof(message) + sizeof r->why, ANSWER_TAG, now_ns() + SECOND);
    free(packed);
    free(ranks);
    return HC_TRANSPORT;
}

/* Checks a received value. 1: it counts; 0: it belongs to an earlier attempt; or a status. */
static int take_value(hc__rendezvous *r, const char *packed, size_t came, int32_t peer, size_t bytes) {
    message head;
    memcpy(&head, packed, sizeof head < came ? sizeof head : came);
    if (came < sizeof head || strncmp(head.version, HPCCOLL_VERSION, sizeof head.version) != 0) {
        snprintf(r->why, sizeof r->why, "rank %d runs hpccoll %.15s, rank 0 runs %s: start all ranks with one library",
                 (int)peer, came < sizeof head ? "of another version" : head.version, HPCCOLL_VERSION);
        return HC_TRANSPORT;
    }
    if (head.number < r->number)
        return 0;
    if (head.number != r->number || head.bytes != bytes || came != sizeof head + bytes) {
        snprintf(r->why, sizeof r->why,
                 "rank %d is at step %u of the start, rank 0 at %u: all ranks make the same "
                 "Worlds in the same order",
                 (int)peer, head.number, r->number);
        return HC_TRANSPORT;
    }
    return 1;
}

static void report(const hc__rendezvous *r, const uint8_t *here, uint64_t *reported) {
    char missing[400];
    if (now_ns() - *reported < REPORT_EVERY)
        return;
    *reported = now_ns();
    name_missing(r, here, missing, sizeof missing);
    fprintf(stderr, "hpccoll: start: waiting for %s\n", missing);
}

static int collect(hc__rendezvous *r, uint8_t *here, char *packed, size_t room, size_t bytes, char *all) {
    uint64_t began = now_ns(), reported = began;
    hc_net_request *request = NULL;
    for (int32_t left = r->size - 1; left > 0;) {
        size_t came = 0;
        int32_t peer = -1;
        int status = HC_OK, late = now_ns() - began > r->timeout; /* before test(): a value in time counts */
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
            char missing[400];
            r->net->ops->cancel(r->net, &request);
            name_missing(r, here, missing, sizeof missing);
            snprintf(r->why, sizeof r->why, "no word from %s within %g s (HPCCOLL_START_TIMEOUT)", missing,
                     (double)r->timeout / 1e9);
            return HC_TRANSPORT;
        }
        report(r, here, &reported);
        pause_a_little(began);
    }
    return HC_OK;
}

/* ---- other ranks ------------------------------------------------------------------------------------------- */

static int await_answer(hc__rendezvous *r, char *packed, size_t room, size_t bytes) {
    uint64_t began = now_ns(), limit = r->timeout + GRACE;
    for (;;) {
        hc_net_request *request = NULL;
        size_t came = 0;
        message head;
        int status = r->net->ops->irecv(r->net, HC_ANY_PEER, ANSWER_TAG, packed, room, &request);
        while (status >= 0 && request) {
            int late = now_ns() - began > limit;
            status = r->net->ops->test(r->net, &request, &came, NULL);
            if (status >= 0 && request && late) {
                r->net->ops->cancel(r->net, &request);
                snprintf(r->why, sizeof r->why, "no word from rank 0 within %g s (HPCCOLL_START_TIMEOUT)",
                         (double)limit / 1e9);
                return HC_TRANSPORT;
            }
            if (request)
                pause_a_little(began);
        }
        if (status < 0)
            return net_failed(r, status);
        memcpy(&head, packed, sizeof head);
        if (head.kind == VERDICT) {
            snprintf(r->why, sizeof r->why, "%s", packed + sizeof head);
            return HC_TRANSPORT;
        }
        if (head.number == r->number && head.bytes == bytes)
            return HC_OK;
    }
}

/* ---- all ranks --------------------------------------------------------------------------------------------- */

static int send_down(hc__rendezvous *r, const void *packed, size_t bytes) {
    int32_t children[32], n = 0, mask = 1;
    while (mask < r->size && !(r->rank & mask))
        mask <<= 1;
    for (mask >>= 1; mask > 0; mask >>= 1)
        if (r->rank + mask < r->size)
            children[n++] = r->rank + mask;
    int status = send_to(r, children, n, packed, bytes, ANSWER_TAG, now_ns() + r->timeout);
    return status < 0 ? net_failed(r, status) : HC_OK;
}

static int lead(hc__rendezvous *r, const void *mine, size_t bytes, char *all) {
    size_t room = sizeof(message) + (bytes > LEAST_BYTES ? bytes : LEAST_BYTES);
    char *packed = malloc(room);
    uint8_t *here = calloc((size_t)r->size, 1);
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

int hc__rendezvous_allgather(hc__rendezvous *r, const void *mine, size_t bytes, void *all) {
    size_t total = bytes * (size_t)r->size, room = sizeof(message) + (total > HC__WHY_BYTES ? total : HC__WHY_BYTES);
    int status = HC_OK;
    char *packed = NULL;
    if (!r->net || r->size == 1) {
        memcpy(all, mine, bytes);
        return HC_OK;
    }
    if (r->rank == 0) {
        status = lead(r, mine, bytes, all);
        packed = status == HC_OK ? pack(r, ANSWER, all, total) : NULL;
    } else {
        void *value = pack(r, VALUE, mine, bytes);
        const int32_t root = 0;
        packed = malloc(room);
        status = !value || !packed
                     ? HC_NO_MEMORY
                     : send_to(r, &root, 1, value, sizeof(message) + bytes, VALUE_TAG, now_ns() + r->timeout + GRACE);
        status = status < 0 ? net_failed(r, status) : await_answer(r, packed, room, total);
        if (status == HC_OK)
            memcpy(all, packed + sizeof(message), total);
        free(value);
    }
    if (status == HC_OK)
        status = packed ? send_down(r, packed, sizeof(message) + total) : HC_NO_MEMORY;
    free(packed);
    r->number++;
    return status;
}

int hc__rendezvous_agree(hc__rendezvous *r, int status, const char *why) {
    struct step {
        int32_t status;
        char why[252];
    } mine = {.status = status}, *all = calloc((size_t)r->size, sizeof mine);
    if (!all)
        return HC_NO_MEMORY;
    snprintf(mine.why, sizeof mine.why, "%s", status >= 0 ? "" : why && *why ? why : hc_status_text(status));
    int outcome = hc__rendezvous_allgather(r, &mine, sizeof mine, all);
    for (int32_t rank = 0; rank < r->size && outcome >= 0; rank++) {
        if (all[rank].status < 0) {
            outcome = all[rank].status;
            snprintf(r->why, sizeof r->why, "rank %d: %s", (int)rank, all[rank].why);
        }
    }
    free(all);
    return outcome;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.c - waits for requests, and their outcomes.
 *
 * A finished request's memory is reused for later requests, oldest first, so that a call with a stale pointer is an
 * error and not a crash.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/list.h"
#include "api/requests.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIVE 0x72657175657374ull

struct hpccoll_request {
    uint64_t state; /* ALIVE, or 0 */
    hpccoll_world *world;
    hc_handle *handle;
    int64_t *counts;  /* memory of the caller, or NULL */
    int *from;        /* likewise, for a receive */
    size_t element;   /* bytes, for a message */
    hc__after *after; /* NULL: no callback */
    hpccoll_request *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hpccoll_request *oldest, *newest;
static size_t many;
#define KEPT 64 /* requests to keep before the oldest is reused */

hpccoll_request *hc__request_new(hpccoll_world *world) {
    hpccoll_request *request = NULL;
    pthread_mutex_lock(&lock);
    if (many > KEPT) {
        request = oldest;
        oldest = oldest->next;
        many--;
    }
    pthread_mutex_unlock(&lock);
    if (!request)
        request = malloc(sizeof *request);
    if (request)
        *request = (hpccoll_request){.state = ALIVE, .world = world};
    return request;
}

void hc__request_hold(hpccoll_request *request, hc_handle *handle, int64_t *counts, int *from) {
    request->handle = handle;
    request->counts = counts;
    request->from = from;
}

void hc__request_after(hpccoll_request *request, hc__after *after) {
    request->after = after;
}

void hc__request_element(hpccoll_request *request, size_t bytes) {
    request->element = bytes;
}

void hc__request_drop(hpccoll_request *request) {
    request->state = 0;
    request->next = NULL;
    pthread_mutex_lock(&lock);
    if (many++)
        newest->next = request;
    else
        oldest = request;
    newest = request;
    pthread_mutex_unlock(&lock);
}

/* ---- outcomes ---------------------------------------------------------------------------------------------- */

int hc__await(hpccoll_world *world, hc_handle *h, uint64_t ns) {
    const hc__base *base = world->base;
    if (h->finished)
        return hc__devices_await(world, h, ns);
    return base && base->job->loop ? base->calls.wait(base->job->loop, &h, 1, ns) : hc_handle_done(h);
}

static int status_of(const hc_handle *h) {
    return h->status >= 0 && h->rows ? h->pieces[0].status : h->status;
}

int hc__status(const hc_handle *h) {
    int status = status_of(h);
    if (status >= 0)
        return status;
    const char *operation = h->op ? (h->op->receives ? "receive" : "send") : hc_operation_name(h->request.operation);
    if (h->op && status == HC_RESULT_SIZE)
        return hc__error(status,
                         "a message of %" PRIu64 " bytes came for a receive of %" PRIu64
                         " bytes (tag %u), which is too small",
                         h->op->received, h->op->bytes, h->op->tag);
    if (h->status >= 0)
        return hc__error(status, "%s '%.*s': %s", operation, (int)h->request.name_len, h->request.name,
                         h->pieces[0].why ? h->pieces[0].why : "it has no result");
    return hc__error(status, "%s", h->text ? h->text : "");
}

/* Records in the order of calls without a name that the program has waited for the request. */
static void note_order(const hpccoll_world *world, const hc_handle *h) {
    if (world->base && h->kind == HC_EV_JOIN)
        hc_order_note(hc__order(world), h);
    if (world->base && h->kind == HC_HANDLE_COUNTED && !hc_handle_position(h)) { /* no rank has numbered it */
        hc_order_take_back(hc__order(world));
    } else if (world->base && hc_order_has(h)) {
        hc_order_note(hc__order(world), h);
        hc_order_end(hc__order(world));
    }
}

/* For hpccoll_world_changes(). */
static void note_waited(const hpccoll_world *world, const hc_handle *h) {
    if (!world->base || !world->base->elastic.generation || world->number)
        return;
    unsigned long long position = hc_handle_position(h), before = atomic_load(&world->base->elastic.waited);
    while (before < position && !atomic_compare_exchange_weak(&world->base->elastic.waited, &before, position)) {}
}

int hc__outcome(hpccoll_world *world, hc_handle *h, int64_t *counts) {
    int status = hc__status(h);
    if (h->finished)
        status = hc__devices_end(world, h, status);
    note_order(world, h);
    note_waited(world, h);
    int gets = hc_operation_gets(h->request.operation, h->request.root, world->rank);
    if (status >= 0 && counts && gets && h->rows && h->pieces[0].recv_rows)
        memcpy(counts, h->pieces[0].recv_rows, (size_t)world->size * sizeof *counts);
    hc_handle_release(h);
    return status;
}

void hc__note_message(const hpccoll_world *world, const hc_handle *h, size_t element, int *from, int64_t *received) {
    if (!h->op->receives || h->status < 0)
        return;
    if (received)
        *received = (int64_t)(h->op->received / element);
    if (from && h->op->peer == HC_NO_PEER)
        *from = HPCCOLL_PROC_NULL;
    for (int32_t rank = 0; from && world->members && rank < world->size; rank++)
        if (world->members[rank] == h->op->peer)
            *from = (int)rank;
}

/* ---- the public functions ---------------------------------------------------------------------------------- */

static int check(hpccoll_request *const *request) {
    if (!request)
        return hc__error(HC_INVALID, "the address of the request is NULL");
    if (*request && (*request)->state != ALIVE)
        return hc__error(HC_INVALID, "the request was waited for before: its memory belongs to nobody");
    return HC_OK;
}

/* Ends a request that is done, and returns the result of hpccoll_wait(). */
static int finish(hpccoll_request **request) {
    hpccoll_request *done = *request;
    if (done->handle->op)
        hc__note_message(done->world, done->handle, done->element, done->from, done->counts);
    hc__after *after = done->after;
    int finished = after ? after->finish(after, done->handle) : HC_OK;
    int status = hc__outcome(done->world, done->handle, done->counts);
    if (after)
        after->free(after);
    hc__request_drop(done);
    *request = NULL;
    return status < 0 ? status : finished;
}

int hpccoll_wait_for(hpccoll_request **request, double seconds, int *done) {
    int status = check(request), over = 1;
    if (status < 0)
        return status;
    if (!(seconds >= 0))
        return hc__error(HC_INVALID, "seconds is %g: a time is not negative", seconds);
    uint64_t ns = seconds > 1e9 ? UINT64_MAX : (uint64_t)(seconds * 1e9);
    if (*request)
        over = hc__await((*request)->world, (*request)->handle, ns);
    if (done)
        *done = over;
    return over && *request ? finish(request) : HC_OK;
}

int hpccoll_test(hpccoll_request **request, int *done) {
    return hpccoll_wait_for(request, 0, done);
}

int hpccoll_wait(hpccoll_request **request) {
    int status = check(request);
    if (status < 0 || !*request)
        return status;
    while (!hc__await((*request)->world, (*request)->handle, UINT64_MAX)) {}
    return finish(request);
}

int hc__many_check(const char *function, int n, const void *array) {
    if (n < 0)
        return hc__error(HC_INVALID, "%s: n is %d: a number of them is not negative", function, n);
    return n && !array ? hc__error(HC_INVALID, "%s: the array of %d is NULL", function, n) : HC_OK;
}

int hpccoll_waitall(int n, hpccoll_request *requests[]) {
    int first = hc__many_check("waitall", n, requests);
    if (first < 0)
        return first;
    char text[HC__ERROR_BYTES] = "";
    for (int i = 0; i < n; i++) {
        int status = hpccoll_wait(&requests[i]);
        if (status < 0 && first >= 0) {
            first = status;
            strncpy(text, hpccoll_last_error(), sizeof text - 1);
        }
    }
    return first < 0 ? hc__error(first, "%s", text) : HC_OK;
}

/* Moves the result that the data plane has allocated to the program. */
static int take_result(const hpccoll_request *request, void **data) {
    hc_piece *piece = &request->handle->pieces[0];
    int status = request->handle->finished ? hc__devices_give(request->world, piece->out) : HC_OK;
    if (status < 0)
        return status;
    *data = piece->out;
    piece->out_owned = 0;
    return HC_OK;
}

int hpccoll_wait_result(hpccoll_request **request, void **data, int64_t *count) {
    int status = check(request);
    if (status < 0)
        return status;
    if (!*request || !data)
        return hc__error(HC_INVALID, "%s is NULL", data ? "the request" : "data");
    hc_handle *h = (*request)->handle;
    *data = NULL;
    if (count)
        *count = 0;
    if ((*request)->after) /* its result is in `out` */
        return hpccoll_wait(request);
    while (!hc__await((*request)->world, h, UINT64_MAX)) {}
    if (status_of(h) >= 0 && !h->op && h->request.ntensors == 1 && h->pieces[0].out_owned)
        status = take_result(*request, data);
    if (count && !h->op && h->request.ntensors == 1)
        *count = h->pieces[0].out_rows * h->pieces[0].row;
    int finished = finish(request);
    return finished < 0 ? finished : status;
}

void hpccoll_release(void *data) {
    if (!hc__devices_take_back(data))
        hc_result_free(data);
}

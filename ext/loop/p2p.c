/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.c - sends and receives: past the engine, straight to the mail; from and to a device by way of host memory.
 *
 * Nobody agrees about a letter. All that it has in common with other requests is its way in (the inbox), its way out
 * (the handle) and its ends: the end of its set's log, and the end of the World.
 */
#include "loop/driver.h"

#include <stdio.h>
#include <stdlib.h>

hc_handle *hc_handle_of_letter(uint32_t set, const hc_letter *letter, int memory) {
    hc_handle *handle = hc_handle_new(HC_HANDLE_LETTER, set, 0, 0, NULL, 0, 0);
    hc_letter *own = malloc(sizeof *own);
    hc_parcel *parcel = memory == HC_MEMORY_HOST || !letter->bytes ? NULL : calloc(1, sizeof *parcel);
    if (!handle || !own || (memory != HC_MEMORY_HOST && letter->bytes && !parcel)) {
        free(own);
        free(parcel);
        hc_handle_release(handle);
        return NULL;
    }
    *own = *letter;
    own->owner = handle;
    handle->letter = own;
    handle->parcel = parcel;
    handle->request.memory = (uint8_t)memory;
    handle->request.operation = letter->receives ? HC_RECEIVE : HC_SEND;
    return handle;
}

/* ---- arrays on a device ---------------------------------------------------------------------------- */

static hc_data *data_of(hc_loop *loop, const hc_handle *handle) {
    return hc__lane_find(loop, handle->set)->data;
}

/* Mail gets host memory in the place of the array's, and of a send the copy has begun. */
static int open_parcel(hc_loop *loop, hc_handle *handle) {
    hc_parcel *parcel = handle->parcel;
    hc_letter *letter = handle->letter;
    if (!parcel)
        return HC_OK;
    hc_data *data = data_of(loop, handle);
    if (!data || !data->ops->parcel_open)
        return HC_UNSUPPORTED;
    *parcel = (hc_parcel){
        .device = letter->data, .bytes = letter->bytes, .ready = handle->ready, .finished = handle->finished};
    int status = data->ops->parcel_open(data, parcel, !letter->receives);
    letter->data = parcel->host;
    return status;
}

static void finish(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    hc_parcel *parcel = handle->parcel;
    const hc__lane *lane = hc__lane_find(loop, handle->set);
    if (status == HC_SHUT_DOWN && !text && lane && lane->stopped)
        text = lane->last_words;
    if (parcel && parcel->own)
        data_of(loop, handle)->ops->parcel_close(data_of(loop, handle), parcel);
    hc__handle_unlink(handle);
    hc__handle_finish(loop, handle, status, text);
}

/* Of the transport's failures the World breaks; what a letter lacks for itself is its own end. */
static void fail(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    if (status == HC_TRANSPORT || status == HC_PEER_LOST)
        hc__loop_fail(loop, status, handle->letter->peer, text ? text : "a letter could not be sent");
    finish(loop, handle, status, text);
}

static void post(hc_loop *loop, hc_handle *handle) {
    int status = hc_mail_post(loop->parts.mail, handle->letter);
    if (status < 0)
        fail(loop, handle, status, NULL);
}

/* Sends to one receiver under one tag are posted in the order in which they were submitted, whatever memory their arrays
 * lie in. */
static int must_wait(const hc_loop *loop, const hc_handle *handle) {
    const hc_letter *letter = handle->letter, *one = loop->unposted;
    while (one && (one->set != letter->set || one->peer != letter->peer || one->tag != letter->tag))
        one = one->next;
    return !letter->receives && (handle->parcel || one);
}

static void wait_for_array(hc_loop *loop, hc_letter *letter) {
    hc_letter **link = &loop->unposted;
    while (*link)
        link = &(*link)->next;
    letter->next = NULL;
    *link = letter;
}

/* The oldest first, which is the order in which their copies end. */
static int post_arrived(hc_loop *loop) {
    int moved = 0;
    while (loop->unposted && !loop->failing) {
        hc_handle *handle = loop->unposted->owner;
        hc_data *data = data_of(loop, handle);
        int status = handle->parcel ? data->ops->parcel_test(data, handle->parcel) : HC_DONE;
        if (status == HC_IDLE)
            break;
        loop->unposted = loop->unposted->next;
        if (status < 0)
            fail(loop, handle, status, data->text);
        else
            post(loop, handle);
        moved = 1;
    }
    return moved;
}

/* 1: it has not been posted, and will not be. */
static int take_back(hc_loop *loop, hc_letter *letter) {
    hc_letter **link = &loop->unposted;
    while (*link && *link != letter)
        link = &(*link)->next;
    if (!*link)
        return 0;
    *link = letter->next;
    return 1;
}

static void arrive(hc_loop *loop, hc_handle *handle) {
    const hc_letter *letter = handle->letter;
    hc_data *data = handle->parcel ? data_of(loop, handle) : NULL;
    int status = letter->status;
    if (status == HC_OK && letter->receives && data)
        status = data->ops->parcel_deliver(data, handle->parcel);
    if (status < 0 && status != letter->status)
        fail(loop, handle, status, data->text);
    else
        finish(loop, handle, status, NULL);
}

/* ---- in, through, out ------------------------------------------------------------------------------ */

void hc__letter_take(hc_loop *loop, hc_handle *handle) {
    const hc__lane *lane = hc__lane_find(loop, handle->set);
    int status = atomic_load(&loop->broken);
    hc_count(&loop->counters.letters, 1);
    hc_count(&loop->counters.letter_bytes, handle->bytes);
    hc__trace_handle(loop, HC_TRACE_ENQUEUE, handle, 0);
    hc__handle_link(&loop->letters, handle);
    if (status != HC_OK) {
        finish(loop, handle, HC_BROKEN, loop->broken_text);
        return;
    }
    handle->letter->set = lane ? lane->wire : 0;
    status = !lane || lane->stopped ? HC_SHUT_DOWN : open_parcel(loop, handle);
    if (status < 0)
        fail(loop, handle, status, lane && lane->data && handle->parcel ? lane->data->text : NULL);
    else if (must_wait(loop, handle))
        wait_for_array(loop, handle->letter);
    else
        post(loop, handle);
}

int hc__letters_progress(hc_loop *loop) {
    hc_letter *letter;
    int moved = post_arrived(loop), progress = hc_mail_progress(loop->parts.mail);
    if (progress < 0)
        hc__loop_fail(loop, progress, -1, "a letter could not be moved");
    while ((letter = hc_mail_done(loop->parts.mail))) {
        arrive(loop, letter->owner);
        progress = HC_MOVED;
    }
    return moved | (progress == HC_MOVED);
}

/* The log of a set has ended, and with it all letters that have not met. Those that have are finished: the other
 * rank may be in the middle of it. */
void hc__letters_stop(hc_loop *loop, uint32_t set) {
    for (hc_handle *handle = loop->letters, *next; handle; handle = next) {
        next = handle->next;
        if (handle->set == set &&
            (take_back(loop, handle->letter) || hc_mail_withdraw(loop->parts.mail, handle->letter)))
            finish(loop, handle, HC_SHUT_DOWN, NULL);
    }
}

int hc__letters_borrow(const hc_loop *loop, uint32_t set) {
    const hc_handle *handle = loop->letters;
    while (handle && !(handle->set == set && handle->parcel && handle->parcel->own))
        handle = handle->next;
    return handle != NULL;
}

/* The World is broken; the mail has been abandoned before. */
void hc__letters_break(hc_loop *loop, int status, const char *text) {
    loop->unposted = NULL;
    while (loop->letters)
        finish(loop, loop->letters, status, text);
}

/* ---- waits that last ------------------------------------------------------------------------------- */

static void describe(const hc_letter *letter, uint64_t ns, char *text, size_t room) {
    char who[32] = "any rank";
    if (letter->peer >= 0)
        snprintf(who, sizeof who, "rank %d of the World", letter->peer);
    snprintf(text, room, "a %s of %llu bytes %s %s (tag %u) has waited %.3g s",
             letter->receives ? "receive" : "send", (unsigned long long)letter->bytes,
             letter->receives ? "from" : "to", who, letter->tag, (double)ns / 1e9);
}

/* As for agreed requests: a report at the warning time and each time it has doubled, the World's end at the limit. The
 * clock runs from when a caller began to wait: a receive that nobody waits for may be open for ever. */
static void watch_wait(hc_loop *loop, hc_handle *handle, uint64_t ns) {
    char text[160];
    uint64_t warning = loop->config.engine.stall_warning, limit = loop->config.engine.stall_limit;
    int warns = warning && ns >= warning << handle->warnings, ends = limit && ns >= limit;
    if (!warns && !ends)
        return;
    describe(handle->letter, ns, text, sizeof text);
    if (ends) {
        hc__loop_fail(loop, HC_STALLED, -1, text);
        return;
    }
    if (handle->warnings < 20)
        handle->warnings++;
    fprintf(stderr, "hpccoll: rank %d: %s\n", loop->config.engine.rank, text);
}

/* Calls `ask` for each rank on another node that a caller waits for. */
void hc__letters_watch(hc_loop *loop, uint64_t now, void (*ask)(hc_loop *, int32_t peer, uint64_t now)) {
    int32_t own = loop->node_of[loop->config.engine.rank];
    for (hc_handle *handle = loop->letters; handle && !loop->failing; handle = handle->next) {
        uint64_t since = atomic_load_explicit(&handle->waited_since, memory_order_relaxed);
        int32_t peer = handle->letter->peer;
        if (!since || since > now)
            continue;
        watch_wait(loop, handle, now - since);
        if (!ask || peer < 0 || loop->node_of[peer] == own)
            continue;
        if (!handle->asked)
            loop->heard[peer] = 0; /* its clock begins */
        handle->asked = 1;
        ask(loop, peer, now);
    }
}

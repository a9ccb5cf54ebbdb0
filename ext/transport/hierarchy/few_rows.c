/* SPDX-License-Identifier: Apache-2.0
 *
 * few_rows.c - the counts of an alltoall between nodes, and the rows that travel with them.
 *
 * A rank of another node gets my counts of all tensors in one message. If my rows for it are few, they stand behind the
 * counts, so that no second message follows. The receiver sees in the counts whether they do. It keeps the rows until
 * all counts have come and the ranks have accepted the result; of a refused tensor it drops them.
 */
#include "transport/hierarchy/few_rows.h"

#include "transport/hierarchy/alltoall.h"
#include "transport/hierarchy/carriers.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/tags.h"

#include <string.h>

#define LEAST_CARRIED 64 /* bytes of rows from one rank to another that should travel with the counts */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t hc__bytes_of_rows(const hc__hierarchy *h, const hc__count *counts) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < h->batch->npieces; i++)
        bytes += counts[i].rows * hc__row_bytes(h, i);
    return bytes;
}

int64_t hc__bytes_of_few(const hc__hierarchy *h, const hc__count *counts) {
    int64_t bytes = hc__bytes_of_rows(h, counts);
    return bytes <= h->alltoall.few.limit ? bytes : 0;
}

/* The limit, at most `most`, where a message has the counts and few rows of so many pairs of ranks. A message whose
 * length the receiver does not know is never cut. Equal on all ranks. */
static int64_t limit_of(const hc__hierarchy *h, int64_t most, int64_t pairs) {
    int64_t limit = least(most, HC__WITH_COUNTS_MEMORY / h->place.size);
    if (h->net->message_bytes > 0)
        limit = least(limit, h->net->message_bytes / pairs - hc__counts_bytes(h));
    return limit > 0 ? limit : 0;
}

/* Chooses carriers if ranks send far fewer messages then, and if not far fewer rows can travel with the counts. All
 * ranks choose the same. */
static void choose(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    int64_t saved = (int64_t)p->size * p->size - (int64_t)p->nodes * (p->nodes - 1);
    int64_t limit = limit_of(h, HC__WITH_COUNTS_BYTES, 1);
    int64_t carried = limit_of(h, HC__CARRIED_BYTES, (int64_t)p->largest * p->largest);
    for (int32_t i = 0; i < p->nodes; i++)
        saved -= (int64_t)(p->first[i + 1] - p->first[i]) * (p->first[i + 1] - p->first[i]);
    h->alltoall.is_carried = p->largest > 1 && saved >= (int64_t)HC__CARRIED_MESSAGES * p->size && carried > 0 &&
                             carried >= least(limit, LEAST_CARRIED);
    h->alltoall.few.limit = h->alltoall.is_carried ? carried : limit;
}

/* Decides where each message begins in `sent`, and writes the counts into it. */
static int start_messages(hc__hierarchy *h) {
    hc__few_rows *f = &h->alltoall.few;
    const int64_t pieces = h->batch->npieces, counts = hc__counts_bytes(h);
    int64_t end = 0;
    for (int32_t r = 0; r < h->place.size; r++) {
        f->ends[r] = end;
        if (hc__is_far(&h->place, r))
            end += counts + hc__bytes_of_few(h, h->alltoall.counts + r * pieces);
    }
    f->sent = hc_malloc((size_t)end + 1);
    f->room = hc_malloc((size_t)h->place.size * (size_t)(counts + f->limit) + 1);
    if (!f->sent || !f->room)
        return HC_NO_MEMORY;
    for (int32_t r = 0; r < h->place.size; r++) {
        if (!hc__is_far(&h->place, r))
            continue;
        memcpy(f->sent + f->ends[r], h->alltoall.counts + r * pieces, (size_t)counts);
        f->ends[r] += counts;
    }
    hc__few_pack(h);
    return HC_OK;
}

void hc__few_pack(hc__hierarchy *h) {
    const hc__alltoall *a = &h->alltoall;
    const hc__few_rows *f = &a->few;
    const int64_t pieces = h->batch->npieces;
    for (int32_t i = 0; i < pieces; i++) {
        int64_t from = 0;
        for (int32_t r = 0; r < h->place.size; r++) {
            int64_t bytes = a->counts[r * pieces + i].rows * hc__row_bytes(h, i);
            if (f->is_sent[r] && bytes > 0) {
                hc_host_copy(f->sent + f->ends[r], (const char *)h->batch->pieces[i].in + from, (size_t)bytes);
                f->ends[r] += bytes;
            }
            from += bytes;
        }
    }
}

int hc__few_start(hc__hierarchy *h) {
    hc__few_rows *f = &h->alltoall.few;
    size_t size = (size_t)h->place.size;
    h->alltoall.is_carried = 0;
    if (h->place.nodes == 1)
        return HC_OK;
    choose(h);
    f->ends = hc_calloc(size, sizeof *f->ends);
    f->is_sent = hc_calloc(size, sizeof *f->is_sent);
    f->lengths = hc_calloc(size, sizeof *f->lengths);
    f->rows = hc_calloc(size, sizeof *f->rows);
    if (!f->ends || !f->is_sent || !f->lengths || !f->rows)
        return HC_NO_MEMORY;
    if (h->batch->equal_rows && !h->alltoall.is_carried)
        return HC_OK; /* no counts travel */
    for (int32_t r = 0; r < h->place.size; r++)
        f->is_sent[r] = hc__is_far(&h->place, r) &&
                        hc__bytes_of_rows(h, h->alltoall.counts + (int64_t)r * h->batch->npieces) <= f->limit;
    return h->alltoall.is_carried ? HC_OK : start_messages(h);
}

int hc__few_send(hc__hierarchy *h, int32_t to) {
    const hc__few_rows *f = &h->alltoall.few;
    int64_t begin = to > 0 ? f->ends[to - 1] : 0;
    return hc__bundle_send(&h->alltoall.bundle, h->place.world[to], h->between.tags + HC__TAG_COUNTS, f->sent + begin,
                           f->ends[to] - begin);
}

/* Where the message from set rank r comes. */
static char *message_from(const hc__hierarchy *h, int32_t r) {
    const hc__few_rows *f = &h->alltoall.few;
    return f->room + r * (hc__counts_bytes(h) + f->limit);
}

int hc__few_receive(hc__hierarchy *h, int32_t from) {
    hc__few_rows *f = &h->alltoall.few;
    hc__bundle *bundle = &h->alltoall.bundle;
    int32_t peer = h->place.world[from], tag = h->between.tags + HC__TAG_COUNTS;
    if (f->limit > 0)
        return hc__bundle_receive_most(bundle, peer, tag, message_from(h, from), hc__counts_bytes(h) + f->limit,
                                       &f->lengths[from]);
    f->lengths[from] = hc__counts_bytes(h);
    return hc__bundle_receive(bundle, peer, tag, message_from(h, from), hc__counts_bytes(h));
}

int hc__few_read(hc__hierarchy *h) {
    hc__few_rows *f = &h->alltoall.few;
    const int64_t counts = hc__counts_bytes(h);
    for (int32_t r = 0; r < h->place.size; r++) {
        hc__count *here = h->alltoall.incoming + (int64_t)r * h->batch->npieces;
        if (!hc__is_far(&h->place, r))
            continue;
        memcpy(here, message_from(h, r), (size_t)counts);
        int64_t rows = hc__bytes_of_rows(h, here);
        int has_come = rows <= f->limit;
        if (f->lengths[r] != counts + (has_come ? rows : 0))
            return HC_TRANSPORT; /* a bug, or a foreign message */
        f->rows[r] = has_come ? message_from(h, r) + counts : NULL;
    }
    return HC_OK;
}

void hc__few_place(hc__hierarchy *h) {
    const hc__alltoall *a = &h->alltoall;
    for (int32_t r = 0; h->place.nodes > 1 && r < h->place.size; r++)
        if (a->few.rows[r] && a->to_here[r + 1] > a->to_here[r])
            hc_host_copy(a->out + a->to_here[r], a->few.rows[r], (size_t)(a->to_here[r + 1] - a->to_here[r]));
}

void hc__few_pass(hc__hierarchy *h) {
    const hc__alltoall *a = &h->alltoall;
    for (int32_t r = 0; h->place.nodes > 1 && r < h->place.size; r++)
        if (a->few.rows[r])
            a->few.rows[r] += a->incoming[(int64_t)r * h->batch->npieces + a->piece].rows * hc__row_bytes(h, a->piece);
}

void hc__few_end(hc__hierarchy *h) {
    hc__few_rows *f = &h->alltoall.few;
    if (!h->alltoall.bundle.stuck) { /* else the net may still read and write the messages */
        hc_free(f->sent);
        hc_free(f->room);
        hc_free(f->lengths);
    }
    hc_free(f->ends);
    hc_free(f->is_sent);
    hc_free(f->rows);
    *f = (hc__few_rows){0};
}

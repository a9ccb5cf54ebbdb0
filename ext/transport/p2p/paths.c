/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c - how the bytes of a large letter go: through cells, over the net, or from one place of this rank to
 * another.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/p2p/internal.h"

static size_t least(size_t a, uint64_t b) {
    return a < b ? a : (size_t)b;
}

/* ---- inside this rank ------------------------------------------------------------------------------ */

static int to_myself(hc_mail *mail, hc_letter *send) {
    for (hc_letter *receive = mail->granted.first; receive; receive = receive->next) {
        if (receive->number != send->theirs || receive->peer != mail->rank)
            continue;
        memmove(receive->data, send->data, (size_t)send->bytes);
        hc__letter_finish(mail, receive, HC_OK);
        break;
    }
    hc__letter_finish(mail, send, HC_OK);
    return HC_MOVED;
}

/* ---- inside the node ------------------------------------------------------------------------------- */

static int through_cells(hc_mail *mail, hc_letter *send) {
    hc__cells *cells = hc__home_cells(mail->home, hc__home_rank(mail->home));
    int moved = HC_IDLE;
    while (send->moved < send->bytes) {
        int cell = hc__cell_take(cells, mail->local_size);
        if (cell < 0)
            return moved;
        size_t n = least(hc__cell_room(mail->local_size), send->bytes - send->moved);
        memcpy(hc__cell_at(cells, mail->local_size, cell), (const uint8_t *)send->data + send->moved, n);
        hc__slip slip = {.kind = HC__CELL, .to = send->theirs, .cell = (uint16_t)cell, .bytes = n};
        int status = hc__mail_tell(mail, send->peer, &slip, NULL);
        if (status < 0)
            return status;
        send->moved += n;
        moved = HC_MOVED;
    }
    hc__letter_finish(mail, send, HC_OK);
    return HC_MOVED;
}

int hc__cell_arrived(hc_mail *mail, int32_t peer, const hc__slip *slip, hc_letter *receive) {
    int32_t local = mail->local_of[peer];
    if (local < 0 || slip->cell >= hc__cells_count(mail->local_size) ||
        slip->bytes > hc__cell_room(mail->local_size) || !receive ||
        slip->bytes > receive->bytes - receive->moved)
        return HC_BAD_MESSAGE;
    hc__cells *cells = hc__home_cells(mail->home, local);
    memcpy((uint8_t *)receive->data + receive->moved, hc__cell_at(cells, mail->local_size, slip->cell),
           (size_t)slip->bytes);
    if (hc__cell_give(cells, slip->cell))
        hc_bell_ring(mail->home, local);
    receive->moved += slip->bytes;
    if (receive->moved == receive->bytes)
        hc__letter_finish(mail, receive, HC_OK);
    return HC_OK;
}

/* ---- between nodes --------------------------------------------------------------------------------- */

/* All flights use one tag and travel in pieces, so there is one at a time from one rank to another. */
static int is_way_free(const hc_letter *letter, const hc__pile *pile) {
    for (const hc_letter *before = pile->first; before != letter; before = before->next)
        if (before->peer == letter->peer)
            return 0;
    return 1;
}

static int take_off(hc_mail *mail, hc_letter *letter) {
    letter->way = calloc(1, sizeof *letter->way);
    if (!letter->way)
        return HC_NO_MEMORY;
    letter->way->net = mail->net;
    if (letter->receives)
        return hc__bundle_receive(letter->way, letter->peer, HC_TAG_MAIL, letter->data,
                                  (int64_t)letter->bytes);
    hc__slip slip = {.kind = HC__FLIGHT, .to = letter->theirs};
    int status = hc__mail_tell(mail, letter->peer, &slip, NULL);
    return status < 0 ? status
                      : hc__bundle_send(letter->way, letter->peer, HC_TAG_MAIL, letter->data,
                                        (int64_t)letter->bytes);
}

static int fly(hc_mail *mail, hc_letter *letter, const hc__pile *pile) {
    int progress = HC_OK, starts = !letter->way;
    if (starts && !is_way_free(letter, pile))
        return HC_IDLE;
    if (starts)
        progress = take_off(mail, letter);
    if (progress >= 0)
        progress = hc__bundle_test(letter->way);
    if (progress < HC_DONE)
        return progress == HC_IDLE && starts ? HC_MOVED : progress;
    hc__letter_finish(mail, letter, HC_OK);
    return HC_MOVED;
}

void hc__way_close(hc_letter *letter) {
    if (!letter->way)
        return;
    hc__bundle_free(letter->way);
    free(letter->way);
    letter->way = NULL;
}

/* ---- either --------------------------------------------------------------------------------------------- */

int hc__send_bytes(hc_mail *mail, hc_letter *send) {
    if (send->peer == mail->rank)
        return to_myself(mail, send);
    return mail->local_of[send->peer] >= 0 ? through_cells(mail, send) : fly(mail, send, &mail->sending);
}

int hc__land_bytes(hc_mail *mail, hc_letter *receive) {
    return fly(mail, receive, &mail->landing);
}

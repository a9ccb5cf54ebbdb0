/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.c - the way of an entry: from the set's root down its tree, or through the sequencer (B5).
 *
 * Sets whose batches share a device's stream must start them in one order on every rank. Their entries go to
 * the World's root, which sends them down the World's tree; every engine passes them on and applies those of
 * its own sets as they arrive.
 */
#include "core/core.h"

#define SEQUENCER 0 /* World rank 0 is the root of set 0's tree */

static void send(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    hc_action *action = hc__act(e, HC_AC_SEND);
    action->peer = peer;
    action->bytes = bytes;
    action->nbytes = nbytes;
}

void hc__send_up(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    send(e, peer, bytes, nbytes);
    hc_count(&e->counters.messages_up, 1);
    hc_count(&e->counters.bytes_up, nbytes);
}

void hc__send_down(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    send(e, peer, bytes, nbytes);
    hc_count(&e->counters.messages_down, 1);
    hc_count(&e->counters.bytes_down, nbytes);
}

static void send_to_children(const hc__set *s, const uint8_t *bytes, size_t nbytes) {
    for (int32_t i = 0; i < s->nchildren; i++)
        hc__send_down(s->engine, s->children[i].rank, bytes, nbytes);
}

static const uint8_t *keep(hc_engine *e, const uint8_t *bytes, size_t nbytes) {
    uint8_t *copy = hc__lend(e, nbytes);
    return copy ? memcpy(copy, bytes, nbytes) : NULL;
}

static hc__reader behind_header(const uint8_t *message, size_t nbytes) {
    return (hc__reader){.at = message + HC__HEADER, .end = message + nbytes};
}

/* ---- a set's own tree -------------------------------------------------------------------------------------- */

/* T9: passed on and applied. (Sending first costs nothing: actions leave together, and shortens the chain.) */
int hc__entry_receive(hc__set *s, const uint8_t *message, size_t nbytes) {
    hc__entry entry;
    hc__reader r = behind_header(message, nbytes);
    if (s->stopped)
        return 0;
    int wrong = hc__entry_read(s->engine, &r, s->set_size, &entry);
    if (!wrong)
        wrong = hc__entry_check(s, &entry);
    if (wrong)
        return wrong;
    if (s->nchildren) {
        const uint8_t *copy = keep(s->engine, message, nbytes);
        if (copy)
            send_to_children(s, copy, nbytes);
    }
    hc__log_apply(s, &entry);
    return 0;
}

/* ---- the sequencer's order ----------------------------------------------------------------------------------- */

static int deliver(hc_engine *e, uint32_t wire, const uint8_t *message, size_t nbytes) {
    hc__entry entry;
    hc__reader r = behind_header(message, nbytes);
    hc__set *world = hc__set_find(e, 0), *s = hc__set_called(e, wire);
    if (!world)
        return HC_BAD_MESSAGE;
    int wrong = hc__entry_read(e, &r, s ? s->set_size : INT32_MAX, &entry);
    int applies = s && s->sequenced && !s->stopped;
    if (!wrong && applies)
        wrong = hc__entry_check(s, &entry);
    if (wrong)
        return wrong;
    send_to_children(world, message, nbytes);
    if (applies)
        hc__log_apply(s, &entry);
    return 0;
}

int hc__sequenced_receive(hc_engine *e, uint32_t wire, const uint8_t *message, size_t nbytes) {
    const uint8_t *copy = keep(e, message, nbytes);
    return copy ? deliver(e, wire, copy, nbytes) : 0;
}

/* Once the World's STOP has passed nothing more is put in order: every member ends its set at that point. */
int hc__sequence_receive(hc_engine *e, uint32_t wire, const uint8_t *message, size_t nbytes) {
    const hc__set *world = hc__set_find(e, 0);
    if (!world || world->parent >= 0)
        return HC_BAD_MESSAGE;
    uint8_t *copy = world->stopped ? NULL : hc__lend(e, nbytes);
    if (!copy)
        return 0;
    memcpy(copy, message, nbytes);
    hc__write_header(copy, HC__M_SEQUENCED, wire);
    return deliver(e, wire, copy, nbytes);
}

/* ---- the root ---------------------------------------------------------------------------------------------------- */

static void publish(hc__set *s, uint8_t *message, size_t nbytes) {
    hc__entry entry;
    hc__write_header(message, HC__M_ENTRY, s->wire);
    send_to_children(s, message, nbytes);
    hc__reader r = behind_header(message, nbytes);
    if (hc__entry_read(s->engine, &r, s->set_size, &entry) == 0)
        hc__log_apply(s, &entry);
}

static void sequence(hc__set *s, uint8_t *message, size_t nbytes) {
    hc_engine *e = s->engine;
    s->awaiting = 1;
    hc__write_header(message, HC__M_SEQUENCE, s->wire);
    if (e->config.rank == SEQUENCER)
        hc__sequence_receive(e, s->wire, message, nbytes);
    else
        hc__send_up(e, SEQUENCER, message, nbytes);
}

/* T8: one entry at a time; the next when this one has been applied here. */
int hc__commit(hc__set *s) {
    size_t nbytes;
    if (s->stopped || s->closed || s->awaiting)
        return 0;
    uint8_t *entry = hc__entry_make(s, &nbytes);
    if (!entry)
        return 0;
    s->closed = (entry[8] & HC__F_STOP) != 0;
    if (s->sequenced && s->id != 0)
        sequence(s, entry - HC__HEADER, HC__HEADER + nbytes);
    else
        publish(s, entry - HC__HEADER, HC__HEADER + nbytes);
    return 1;
}

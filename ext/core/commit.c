/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.c - makes entries at a set's root and sends them down the set's tree.
 */
#include "core/commit.h"

#include "core/actions.h"
#include "core/entry.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/state.h"
#include "core/wire.h"

static void send_to_children(const hc__set *s, const uint8_t *bytes, size_t nbytes) {
    for (int32_t i = 0; i < s->nchildren; i++)
        hc__send_down(s->engine, s->children[i].rank, bytes, nbytes);
}

static const uint8_t *keep(hc_engine *e, const uint8_t *bytes, size_t nbytes) {
    uint8_t *copy = hc__scratch(e, nbytes);
    return copy ? memcpy(copy, bytes, nbytes) : NULL;
}

static hc__reader behind_header(const uint8_t *message, size_t nbytes) {
    return (hc__reader){.at = message + HC__HEADER, .end = message + nbytes};
}

/* ---- a set's own tree ---------------------------------------------------------------------------- */

/* T9: forwards the entry and applies it. All actions of a step leave together, so the order is free. */
int hc__entry_receive(hc__set *s, const uint8_t *message, size_t nbytes) {
    hc__entry entry;
    hc__reader r = behind_header(message, nbytes);
    if (s->end.stopped)
        return 0;
    int wrong = hc__entry_read(s, &r, &entry);
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

/* ---- the root ------------------------------------------------------------------------------------ */

static void publish(hc__set *s, uint8_t *message, size_t nbytes) {
    hc__entry entry;
    hc__write_header(message, HC__M_ENTRY, s->wire);
    send_to_children(s, message, nbytes);
    hc__reader r = behind_header(message, nbytes);
    if (hc__entry_read(s, &r, &entry) == 0)
        hc__log_apply(s, &entry);
}

/* T8: makes one entry of all ready items. */
int hc__commit(hc__set *s) {
    size_t nbytes;
    if (s->end.stopped)
        return 0;
    uint8_t *entry = hc__entry_make(s, &nbytes);
    if (!entry)
        return 0;
    publish(s, entry - HC__HEADER, HC__HEADER + nbytes);
    return 1;
}

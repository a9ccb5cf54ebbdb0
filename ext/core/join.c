/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c - ranks that have nothing more to give: they complete every request of the others until all have
 * joined.
 *
 * A join whose rank still has requests under way is loose: an entry that frees slots makes that rank raise them
 * anew, and until that has risen the others must not take it for one that has everything. So such an entry
 * voids loose joins everywhere, and they follow the re-raised requests. Without this a request of a joined rank
 * can be left behind at JOINALL, or run against a signature that was never compared with its own.
 */
#include "core/core.h"

static int has_raised(const hc__set *s) {
    return s->oldest != HC__NONE && s->oldest != s->unraised;
}

static void raise_join(hc__set *s) {
    s->loose = (uint8_t)has_raised(s);
    hc__tree_joined(s, 0, !s->loose, s->loose, s->set_rank);
}

void hc__join(hc__set *s, uint64_t ticket) {
    hc_engine *e = s->engine;
    if (s->stopping || s->stopped) {
        hc__complete(e, ticket, HC_SHUT_DOWN, hc__shut_down_text(s), s->q);
        return;
    }
    if (s->joined) {
        hc__complete(e, ticket, HC_DUPLICATE_NAME, "this rank has joined already", s->q);
        return;
    }
    for (uint32_t i = 0; i < e->nsets; i++) /* R1 */
        if (e->sets[i])
            hc__raise_all(e->sets[i]);
    s->joined = 1;
    s->join_ticket = ticket;
    s->joined_at = e->now;
    e->retime = 1;
    raise_join(s);
    hc__leave_look(s);
}

void hc__join_void(hc__set *s) {
    for (uint32_t source = 0; source < s->nsources; source++)
        s->joined_loose[source] = 0;
    s->out_loose = 0;
}

void hc__join_again(hc__set *s) {
    raise_join(s);
}

void hc__join_all(hc__set *s, int32_t last) {
    for (uint32_t source = 0; source < s->nsources; source++)
        s->joined_firm[source] = s->joined_loose[source] = 0;
    s->out_firm = s->out_loose = 0;
    s->joined = s->loose = 0;
    hc__complete(s->engine, s->join_ticket, HC_OK, "", s->q)->value = last;
    if (s->asked_ticket == s->join_ticket)
        s->asked_ticket = 0;
    s->join_ticket = 0;
    hc__stall_forget(s, (const uint64_t[2]){0, 0});
    if (s->flush_owed)
        hc__raise_all(s);
    s->flush_owed = 0;
}

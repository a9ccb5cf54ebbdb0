/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c - ranks without further requests: they take part in every request of the others until all have joined.
 *
 * A join is loose if its rank still has raised requests: an entry that frees slots makes that rank raise them again,
 * and until then the others must not count it as having everything. So such an entry voids loose joins everywhere, and
 * the ranks join again after the re-raised requests. Otherwise a request of a joined rank could be left over at
 * JOINALL, or run with a signature that was never compared with its own.
 */
#include "core/join.h"

#include "core/actions.h"
#include "core/numbers.h"
#include "core/query.h"
#include "core/raise.h"
#include "core/renumber.h"
#include "core/state.h"
#include "core/stop.h"
#include "core/tree.h"

static int has_raised(const hc__set *s) {
    return s->pending.oldest != HC__NONE && s->pending.oldest != s->pending.unraised;
}

static void raise_join(hc__set *s) {
    s->joins.is_owed = s->pending.nbehind > 0 || s->pending.unnamed.requests > s->pending.unnamed.later ||
                       s->pending.unnamed.refusals > 0;
    if (s->joins.is_owed)
        return;
    s->joins.is_loose = (uint8_t)has_raised(s);
    hc__tree_joined(s, 0, !s->joins.is_loose, s->joins.is_loose, s->set_rank);
    hc__renumber_check(s);
}

void hc__join(hc__set *s, uint64_t ticket) {
    hc_engine *e = s->engine;
    if (s->end.stopping || s->end.stopped) {
        hc__complete(e, ticket, HC_SHUT_DOWN, hc__shut_down_text(s), s->position);
        return;
    }
    if (s->joins.joined) {
        hc__complete(e, ticket, HC_DUPLICATE_NAME, "this rank has joined already", s->position);
        return;
    }
    hc__raise_everywhere(e); /* R1 */
    s->joins.joined = 1;
    hc__numbers_join(s);
    s->joins.ticket = ticket;
    s->joins.since = e->now;
    e->retime = 1;
    raise_join(s);
    hc__leave_check(s);
}

/* A join comes after the requests of its rank that wait for a refusal, and after its requests and refusals without a
 * name: the others may know these calls by other names, and must not complete them without this rank. */
void hc__join_owed(hc__set *s) {
    if (s->joins.is_owed)
        raise_join(s);
}

void hc__join_void(hc__set *s) {
    for (uint32_t source = 0; source < hc__sources(s); source++)
        s->joins.loose[source] = 0;
    s->joins.out_loose = 0;
}

void hc__join_again(hc__set *s) {
    if (s->joins.is_loose)
        raise_join(s);
}

void hc__join_all(hc__set *s, int32_t last) {
    for (uint32_t source = 0; source < hc__sources(s); source++)
        s->joins.firm[source] = s->joins.loose[source] = 0;
    s->joins.out_firm = s->joins.out_loose = 0;
    s->joins.joined = s->joins.is_loose = 0;
    s->pending.unnamed.later = 0;
    hc__complete(s->engine, s->joins.ticket, HC_OK, "", s->position)->value = last;
    if (s->stall.asked_ticket == s->joins.ticket)
        s->stall.asked_ticket = 0;
    s->joins.ticket = 0;
    hc__query_forget(s, hc__join_key);
    if (s->joins.flush_owed)
        hc__raise_all(s);
    s->joins.flush_owed = 0;
}

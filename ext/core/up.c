/* SPDX-License-Identifier: Apache-2.0
 *
 * up.c - the messages from a node to its parent.
 *
 *     u64 tag, u8 flags, (STOP, LEAVE: i32 first to leave, u8 n, n bytes: why,)
 *     u32 joined (firm), u32 joined (loose), i32 last,
 *     columns: slots, rooted, conflict,
 *     u32 n, n first announcements: u8 rooted, u8 signatures, a signature: i32 lowest rank, u32 bytes, bytes
 */
#include "core/up.h"

#include "core/actions.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/renumber.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/stop.h"
#include "core/tree.h"
#include "core/wire.h"

#define FIXED (HC__HEADER + 8 + 1 + HC__LEAVER_MOST + 4 + 4 + 4 + 3 * 4 + 4)

/* ---- sending ------------------------------------------------------------------------------------- */

static int nothing_out(const hc__set *s) {
    return !s->tree.flags_out && !s->joins.out_firm && !s->joins.out_loose && !hc__tree_any_out(s);
}

static size_t measure(const hc__set *s) {
    size_t bytes = FIXED + 3 * 12 * (size_t)s->slots.nwords;
    for (const hc__first *first = s->tree.out; first; first = first->out_next) {
        bytes += 2;
        for (int i = 0; i < first->nsigs; i++)
            bytes += 8 + first->sigs[i]->nbytes;
    }
    return bytes;
}

static uint64_t rooted(const uint64_t *row) {
    return row[HC__OUT] & row[HC__ROOTED];
}

static uint8_t *write_first(const hc__first *first, uint8_t *p) {
    p = hc__write8(p, first->rooted);
    p = hc__write8(p, first->nsigs);
    for (int i = 0; i < first->nsigs; i++) {
        p = hc__write32(p, (uint32_t)first->ranks[i]);
        p = hc__write32(p, first->sigs[i]->nbytes);
        p = hc__write_bytes(p, first->sigs[i]->bytes, first->sigs[i]->nbytes);
    }
    return p;
}

/* T4: sends one message, tagged with this rank's position. Until it has left, further items wait for the next one. */
void hc__up_send(hc__set *s) {
    if (s->tree.is_sending || s->end.stopped || nothing_out(s))
        return;
    uint8_t *message = hc__scratch(s->engine, measure(s));
    if (!message)
        return;
    uint8_t *p = hc__write_header(message, HC__M_UP, s->wire);
    p = hc__write64(p, s->position);
    p = hc__write8(p, s->tree.flags_out);
    hc__leaver leaver = hc__first_to_leave(s);
    p = hc__write_leaver(p, s->tree.flags_out, &leaver);
    p = hc__write32(p, s->joins.out_firm);
    p = hc__write32(p, s->joins.out_loose);
    p = hc__write32(p, (uint32_t)s->joins.last);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, hc__row_out);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, rooted);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, hc__row_conflict);
    p = hc__tree_write_firsts(s, p, write_first);
    hc__tree_clear_out(s);
    s->joins.out_firm = s->joins.out_loose = 0;
    s->tree.is_sending = 1;
    hc__send_up(s->engine, s->parent, message, (size_t)(p - message));
}

/* ---- receiving ----------------------------------------------------------------------------------- */

typedef struct up {
    uint64_t tag;
    uint8_t flags;
    hc__leaver leaver;
    uint32_t firm, loose;
    int32_t last;
    hc__column_view slots, rooted, conflict;
    uint32_t nfirsts;
    const uint8_t *firsts, *end;
} up;

typedef struct up_first {
    int rooted, nsigs;
    int32_t ranks[2];
    hc__sig_view sigs[2];
} up_first;

/* 1: these are two different signatures of one name, the lower rank's first. */
static int may_disagree(const up_first *first) {
    const hc__sig_view *a = &first->sigs[0], *b = &first->sigs[1];
    int one_name = a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
    int equal = a->nbytes == b->nbytes && memcmp(a->bytes, b->bytes, a->nbytes) == 0;
    return one_name && !equal && first->ranks[0] < first->ranks[1];
}

static void read_first(hc__reader *r, int32_t set_size, up_first *first) {
    first->rooted = hc__read8(r);
    first->nsigs = hc__read8(r);
    if (first->rooted > 1 || first->nsigs < 1 || first->nsigs > 2)
        r->bad = 1;
    for (int i = 0; i < first->nsigs && !r->bad; i++) {
        first->ranks[i] = (int32_t)hc__read32(r);
        uint32_t n = hc__read32(r);
        const uint8_t *bytes = hc__read_bytes(r, n);
        if (!bytes || first->ranks[i] < 0 || first->ranks[i] >= set_size ||
            hc__sig_check(bytes, n, set_size, &first->sigs[i]))
            r->bad = 1;
    }
    if (!r->bad && first->nsigs == 2 && !may_disagree(first))
        r->bad = 1;
}

static void check_column(const hc__set *s, hc__reader *r, hc__column_view column) {
    uint64_t bits;
    if (column.n && hc__column_word(column, column.n - 1, &bits) > s->engine->config.cache_capacity / 64)
        r->bad = 1;
}

static int read_up(const hc__set *s, uint32_t source, const uint8_t *bytes, size_t nbytes, up *m) {
    hc__reader r = {.at = bytes, .end = bytes + nbytes};
    m->tag = hc__read64(&r);
    m->flags = hc__read8(&r);
    m->leaver = hc__read_leaver(&r, m->flags, s->set_size, s->engine->config.size);
    m->firm = hc__read32(&r);
    m->loose = hc__read32(&r);
    m->last = (int32_t)hc__read32(&r);
    m->slots = hc__read_column(&r);
    m->rooted = hc__read_column(&r);
    m->conflict = hc__read_column(&r);
    check_column(s, &r, m->slots);
    check_column(s, &r, m->rooted);
    check_column(s, &r, m->conflict);
    m->nfirsts = hc__read32(&r);
    m->firsts = r.at;
    m->end = r.end;
    up_first first;
    for (uint32_t i = 0; i < m->nfirsts && !r.bad; i++)
        read_first(&r, s->set_size, &first);
    uint64_t subtree = (uint64_t)s->children[source - 1].subtree;
    if (r.bad || r.at != r.end || (m->flags & ~HC__F_OF_UP) || m->firm > subtree || m->loose > subtree ||
        ((m->firm || m->loose) && (m->last < 0 || m->last >= s->set_size)))
        return HC_BAD_MESSAGE;
    return 0;
}

/* T6: bits of slots that have changed since the sender's position are void. The sender will apply the change and raise
 * again. */
static uint64_t not_stale(const hc__set *s, uint32_t word, uint64_t bits, uint64_t tag) {
    if (word >= s->slots.nwords)
        return 0;
    bits &= hc__row(&s->slots, word)[HC__USED];
    if (s->slots.changed <= tag)
        return bits;
    for (uint64_t rest = bits; rest; rest &= rest - 1)
        if (s->slots.at[64 * word + (uint32_t)hc__bit(rest)].gen > tag)
            bits &= ~(rest & (0 - rest));
    return bits;
}

static void take_slots(hc__set *s, uint32_t source, const up *m) {
    uint64_t bits;
    for (uint32_t i = 0; i < m->slots.n; i++) {
        uint32_t word = hc__column_word(m->slots, i, &bits);
        if ((bits = not_stale(s, word, bits, m->tag)))
            hc__row(&s->slots, word)[HC__HAVE + source] |= bits;
    }
    for (uint32_t i = 0; i < m->rooted.n; i++) {
        uint32_t word = hc__column_word(m->rooted, i, &bits);
        if ((bits = not_stale(s, word, bits, m->tag)))
            hc__row(&s->slots, word)[HC__ROOTED] |= bits;
    }
    for (uint32_t i = 0; i < m->conflict.n; i++) {
        uint32_t word = hc__column_word(m->conflict, i, &bits);
        for (bits = not_stale(s, word, bits, m->tag); bits; bits &= bits - 1)
            hc__tree_conflict(s, (int32_t)(64 * word + (uint32_t)hc__bit(bits)));
    }
    hc__tree_rise(s, 0, s->slots.nwords);
}

/* Returns the signature for these bytes: an existing object or a new one. The caller owns a reference. */
static hc__sig *find_sig(hc__set *s, uint32_t name, const hc__sig_view *view) {
    hc__name *record = &s->names.at[name];
    if (record->mine && hc__sig_is(record->mine, view->bytes, view->nbytes))
        return hc__sig_ref(record->mine);
    for (int i = 0; record->first && i < record->first->nsigs; i++)
        if (hc__sig_is(record->first->sigs[i], view->bytes, view->nbytes))
            return hc__sig_ref(record->first->sigs[i]);
    return hc__sig_new(s->engine, view, record->key);
}

static void take_first(hc__set *s, uint32_t source, const up_first *from) {
    uint64_t key[2];
    hc__hash(from->sigs[0].name, from->sigs[0].name_len, key);
    uint32_t name = hc__name_intern(s, key);
    if (name == HC__NONE)
        return;
    for (int i = 0; i < from->nsigs; i++) {
        hc__sig *sig = find_sig(s, name, &from->sigs[i]);
        if (sig)
            hc__tree_have_first(s, name, source, sig, from->ranks[i], from->rooted);
        hc__sig_unref(s->engine, sig);
    }
    hc__name_forget(s, name);
}

/* Takes items before joins, because a rank's requests come before its join. */
static void take(hc__set *s, uint32_t source, const up *m) {
    hc__reader r = {.at = m->firsts, .end = m->end};
    take_slots(s, source, m);
    for (uint32_t i = 0; i < m->nfirsts; i++) {
        up_first first;
        read_first(&r, s->set_size, &first);
        if (!hc__renumber_voids(s, &first.sigs[0]))
            take_first(s, source, &first);
    }
    hc__child_flags(s, m->flags, &m->leaver);
    uint32_t loose = s->slots.freed > m->tag ? 0 : m->loose; /* T6 */
    uint64_t after = (uint64_t)s->joins.firm[source] + s->joins.loose[source] + m->firm + loose;
    if (after <= (uint64_t)s->children[source - 1].subtree)
        hc__tree_joined(s, source, m->firm, loose, m->last);
    if (m->flags & HC__F_RENUMBER)
        hc__renumber_have(s, source, m->tag);
    hc__renumber_check(s);
}

/* T5: a child gets its entries from this rank, so its position is never ahead of this rank's. */
int hc__up_receive(hc__set *s, uint32_t source, const uint8_t *bytes, size_t nbytes) {
    up m;
    if (source == 0 || read_up(s, source, bytes, nbytes, &m))
        return HC_BAD_MESSAGE;
    if (s->end.stopped)
        return 0;
    if (m.tag > s->position)
        return HC_BAD_MESSAGE;
    take(s, source, &m);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * entry.c - encodes an entry of the log at the root; every member reads and checks it.
 *
 *     u64 position, u8 flags, (STOP, LEAVE: i32 first to leave, u8 n, n bytes: why,)
 *     (TUNE: u64 fusion threshold, u64 raise bytes, u64 raise window in ns,) i32 last to join,
 *     columns: conflict, commit, rootless (of commit),
 *     u32 n, n first announcements: u8 outcome, u32 bytes, then
 *         AGREED, ROOTLESS: the signature       DISAGREED: u32 bytes of the name, the name, the text
 */
#include "core/entry.h"

#include "core/describe.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/refuse.h"
#include "core/renumber.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/tune.h"
#include "core/wire.h"

#define FIXED (8 + 1 + HC__LEAVER_MOST + HC__TUNING_BYTES + 4 + 3 * 4 + 4)

/* ---- encoding (at the root) ---------------------------------------------------------------------- */

static uint64_t rootless(const uint64_t *row) {
    return row[HC__OUT] & row[HC__NEEDS_ROOT] & ~row[HC__ROOTED];
}

static uint8_t *write_disagreed(const hc__first *first, uint8_t *p) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    int last = first->nsigs - 1;
    const hc_request *a = &first->sigs[0]->request, *b = &first->sigs[last]->request;
    hc__describe_mismatch(&text, first->ranks[0], a, first->ranks[last], b);
    p = hc__write8(p, HC__DISAGREED);
    p = hc__write32(p, (uint32_t)(4 + a->name_len + text.len));
    p = hc__write32(p, a->name_len);
    p = hc__write_bytes(p, a->name, a->name_len);
    return hc__write_bytes(p, text.at, text.len);
}

static int disagrees(const hc__first *first) {
    return first->nsigs > 1 || hc__is_refusal(&first->sigs[0]->request);
}

static uint8_t *write_first(const hc__first *first, uint8_t *p) {
    const hc__sig *sig = first->sigs[0];
    if (disagrees(first)) /* T7 */
        return write_disagreed(first, p);
    int lacks_root = hc_operation_has(sig->request.operation, HC_OP_ROOTED) && !first->rooted;
    p = hc__write8(p, lacks_root ? HC__ROOTLESS : HC__AGREED);
    p = hc__write32(p, sig->nbytes);
    return hc__write_bytes(p, sig->bytes, sig->nbytes);
}

static size_t measure(const hc__set *s) {
    size_t bytes = FIXED + 3 * 12 * (size_t)s->slots.nwords;
    for (const hc__first *first = s->tree.out; first; first = first->out_next)
        bytes += 5 + first->sigs[0]->nbytes + (disagrees(first) ? 4 + HC__TEXT : 0);
    return bytes;
}

/* An entry of all ready items and flags. JOINALL is an entry of its own, after all ranks have joined and all their
 * items are committed. */
uint8_t *hc__entry_make(hc__set *s, size_t *nbytes) {
    int items = hc__tree_any_out(s);
    uint8_t flags = s->tree.flags_out;
    if (!items && s->joins.out_firm + s->joins.out_loose >= (uint32_t)s->set_size)
        flags |= HC__F_JOINALL;
    if (!items && hc__renumber_ready(s))
        flags |= HC__F_RENUMBER;
    if (!items && !flags)
        return NULL;
    if (items && s->tune.is_proposed)
        flags |= HC__F_TUNE;
    uint8_t *entry = hc__scratch(s->engine, HC__HEADER + measure(s));
    if (!entry)
        return NULL;
    entry += HC__HEADER;
    uint8_t *p = hc__write64(entry, s->position + 1);
    p = hc__write8(p, flags);
    hc__leaver leaver = hc__first_to_leave(s);
    p = hc__write_leaver(p, flags, &leaver);
    if (flags & HC__F_TUNE)
        p = hc__tune_write(s, p);
    p = hc__write32(p, (uint32_t)s->joins.last);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, hc__row_conflict);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, hc__row_out);
    p = hc__write_column(p, s->slots.rows, s->slots.nwords, s->slots.stride, rootless);
    p = hc__tree_write_firsts(s, p, write_first);
    hc__tree_clear_out(s);
    *nbytes = (size_t)(p - entry);
    return entry;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static void read_disagreed(hc__reader *r, hc__entry_first *first) {
    first->sig.name_len = hc__read32(r);
    first->sig.name = hc__read_bytes(r, first->sig.name_len);
    if (!first->sig.name || first->sig.name_len == 0 || first->sig.name_len > HC_MAX_NAME)
        r->bad = 1;
    first->text = r->at;
    first->text_len = (uint32_t)(r->end - r->at);
    if (first->text_len >= HC__TEXT)
        r->bad = 1;
}

static void read_first(hc__reader *r, int32_t set_size, hc__entry_first *first) {
    *first = (hc__entry_first){.outcome = hc__read8(r)};
    uint32_t n = hc__read32(r);
    const uint8_t *bytes = hc__read_bytes(r, n);
    if (!bytes || first->outcome > HC__ROOTLESS) {
        r->bad = 1;
        return;
    }
    hc__reader inner = {.at = bytes, .end = bytes + n};
    if (first->outcome == HC__DISAGREED)
        read_disagreed(&inner, first);
    else if (hc__sig_check(bytes, n, set_size, &first->sig))
        inner.bad = 1;
    if (inner.bad)
        r->bad = 1;
    else
        hc__hash(first->sig.name, first->sig.name_len, first->key);
}

int hc__entry_read(hc__set *s, hc__reader *r, hc__entry *entry) {
    entry->position = hc__read64(r);
    entry->flags = hc__read8(r);
    entry->leaver = hc__read_leaver(r, entry->flags, s->set_size, s->engine->config.size);
    if (entry->flags & HC__F_TUNE)
        hc__tune_read(r, &entry->tuning);
    entry->last_joined = (int32_t)hc__read32(r);
    entry->conflict = hc__read_column(r);
    entry->commit = hc__read_column(r);
    entry->rootless = hc__read_column(r);
    entry->nfirsts = hc__read32(r);
    if (r->bad || entry->nfirsts > (size_t)(r->end - r->at) / 5)
        return HC_BAD_MESSAGE;
    entry->firsts = hc__scratch(s->engine, (entry->nfirsts + 1) * sizeof *entry->firsts);
    if (!entry->firsts)
        return HC_NO_MEMORY;
    for (uint32_t i = 0; i < entry->nfirsts && !r->bad; i++)
        read_first(r, s->set_size, &entry->firsts[i]);
    return r->bad || r->at != r->end || (entry->flags & ~HC__F_OF_ENTRY) ? HC_BAD_MESSAGE : 0;
}

/* ---- checking: an entry that this rank cannot apply is refused before anything is changed -------- */

static int in_use(const hc__set *s, hc__column_view column) {
    uint64_t bits;
    for (uint32_t i = 0; i < column.n; i++) {
        uint32_t word = hc__column_word(column, i, &bits);
        if (word >= s->slots.nwords || (bits & ~hc__row(&s->slots, word)[HC__USED]))
            return 0;
    }
    return 1;
}

/* 1: every bit of `of` is also in `in`. */
static int within(hc__column_view of, hc__column_view in) {
    uint32_t j = 0;
    for (uint32_t i = 0; i < of.n; i++) {
        uint64_t bits, all = 0;
        uint32_t word = hc__column_word(of, i, &bits), at = 0;
        while (j < in.n && (at = hc__column_word(in, j, &all)) < word)
            j++;
        if (j == in.n || at != word || (bits & ~all))
            return 0;
    }
    return 1;
}

static int overlap(hc__column_view a, hc__column_view b) {
    for (uint32_t i = 0, j = 0; i < a.n && j < b.n;) {
        uint64_t bits, more;
        uint32_t word = hc__column_word(a, i, &bits), other = hc__column_word(b, j, &more);
        if (word == other && (bits & more))
            return 1;
        if (word <= other)
            i++;
        if (other <= word)
            j++;
    }
    return 0;
}

/* I3: this rank has joined, or it has raised every committed item, with the same signature. */
static int is_ours(const hc__set *s, const hc__entry *entry) {
    uint64_t bits;
    for (uint32_t i = 0; i < entry->commit.n && !s->joins.joined; i++) {
        uint32_t word = hc__column_word(entry->commit, i, &bits);
        if (bits & ~hc__row(&s->slots, word)[HC__HAVE])
            return 0;
    }
    for (uint32_t i = 0; i < entry->nfirsts; i++) {
        const hc__entry_first *first = &entry->firsts[i];
        uint32_t name = hc__name_find(s, first->key);
        int mine = name != HC__NONE && s->names.at[name].phase == HC__ON_FIRST;
        int is_refusal = name != HC__NONE && hc__refusal_raised(s, name);
        if ((!mine && !is_refusal && !s->joins.joined) || (is_refusal && first->outcome != HC__DISAGREED))
            return 0;
        if (mine && first->outcome == HC__AGREED &&
            !hc__sig_is(s->names.at[name].mine, first->sig.bytes, first->sig.nbytes))
            return 0;
    }
    return 1;
}

int hc__entry_check(hc__set *s, hc__entry *entry) {
    if (entry->position != s->position + 1 || !in_use(s, entry->conflict) || !in_use(s, entry->commit))
        return HC_BAD_MESSAGE;
    if (overlap(entry->conflict, entry->commit) || !within(entry->rootless, entry->commit))
        return HC_BAD_MESSAGE;
    if ((entry->flags & HC__F_JOINALL) && !s->joins.joined)
        return HC_BAD_MESSAGE;
    return is_ours(s, entry) ? 0 : HC_BAD_MESSAGE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c - applies entries. Everything here depends only on the log: not on times, sizes or pending requests.
 */
#include "core/log.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/describe.h"
#include "core/entry.h"
#include "core/fuse.h"
#include "core/join.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/pending.h"
#include "core/query.h"
#include "core/raise.h"
#include "core/refuse.h"
#include "core/renumber.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/tune.h"
#include "core/wire.h"

/* ---- L1 ------------------------------------------------------------------------------------------ */

static void free_conflicting(hc__set *s, hc__column_view column) {
    uint64_t bits;
    for (uint32_t i = 0; i < column.n; i++) {
        uint32_t word = hc__column_word(column, i, &bits);
        for (; bits; bits &= bits - 1) {
            hc__slot_free(s, (int32_t)(64 * word + (uint32_t)hc__bit(bits)));
            hc_count(&s->engine->counters.conflicts, 1);
        }
    }
}

/* ---- L2 ------------------------------------------------------------------------------------------ */

static void note_unnamed(hc__set *s, int unnamed) {
    if (unnamed)
        s->pending.unnamed.settled = s->position;
}

/* This rank's request in a commit; none if it has joined. */
static uint32_t own_share(hc__set *s, uint32_t name, uint8_t phase, int32_t slot) {
    hc__name *record = &s->names.at[name];
    if (record->phase != phase || record->raised_slot != slot)
        return HC__NONE;
    hc__pending_unlink(s, name);
    record->phase = HC__RUNNING;
    record->position = s->position;
    record->batches = 0;
    record->status = 0;
    return name;
}

static void root_has_joined(hc__set *s, uint32_t name, const hc_request *request) {
    char buffer[HC__TEXT];
    if (name == HC__NONE)
        return;
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__describe_root_joined(&text, request);
    hc__finish(s, name, HC_ROOT_JOINED, hc__scratch_text(s->engine, buffer), s->position);
}

static uint32_t commit_slot(hc__set *s, uint32_t slot, int rootless, hc__agreed *agreed) {
    hc__slot *at = &s->slots.at[slot];
    hc__sig *sig = at->sig;
    uint32_t name = own_share(s, at->name, HC__ON_SLOT, (int32_t)slot);
    hc__query_forget(s, sig->key);
    note_unnamed(s, sig->unnamed);
    if (rootless) {
        root_has_joined(s, name, &sig->request);
        return 0;
    }
    hc__slot_touch(s, (int32_t)slot);
    *agreed = (hc__agreed){.sig = sig, .name = name, .cached = 1};
    hc_count(&s->engine->counters.cached_commits, 1);
    return 1;
}

static uint32_t commit_slots(hc__set *s, const hc__entry *entry, hc__agreed *agreed) {
    uint32_t n = 0, j = 0;
    for (uint32_t i = 0; i < entry->commit.n; i++) {
        uint64_t bits, less = 0;
        uint32_t word = hc__column_word(entry->commit, i, &bits);
        if (j < entry->rootless.n && hc__column_word(entry->rootless, j, &less) == word)
            j++;
        else
            less = 0;
        uint64_t *row = hc__row(&s->slots, word);
        for (uint64_t rest = bits; rest; rest &= rest - 1) {
            uint32_t bit = (uint32_t)hc__bit(rest);
            n += commit_slot(s, 64 * word + bit, less >> bit & 1, &agreed[n]);
        }
        row[HC__SENT] &= ~bits; /* T10 */
        row[HC__OUT] &= ~bits;
        row[HC__ROOTED] &= ~bits;
        for (uint32_t source = 0; source < hc__sources(s); source++)
            row[HC__HAVE + source] &= ~bits;
    }
    return n;
}

/* ---- L3 ------------------------------------------------------------------------------------------ */

/* Returns the object of an agreed signature; the caller owns a reference. */
static hc__sig *agreed_sig(hc__set *s, uint32_t name, const hc__entry_first *from) {
    const hc__name *record = &s->names.at[name];
    if (record->mine && hc__sig_is(record->mine, from->sig.bytes, from->sig.nbytes))
        return hc__sig_ref(record->mine);
    return hc__sig_new(s->engine, &from->sig, from->key);
}

static uint32_t agree_first(hc__set *s, uint32_t name, uint32_t own_name, const hc__entry_first *from,
                            hc__agreed *agreed) {
    hc__sig *sig = agreed_sig(s, name, from);
    if (!sig)
        return 0;
    if (from->outcome == HC__ROOTLESS) {
        root_has_joined(s, own_name, &sig->request);
        hc__sig_unref(s->engine, sig);
        return 0;
    }
    if (s->engine->config.cache_capacity && sig->unnamed != HC__ORDERED &&
        hc__slot_find(s, name, sig->bytes, sig->nbytes) < 0)
        hc__slot_assign(s, name, sig);
    *agreed = (hc__agreed){.sig = sig, .name = own_name};
    hc__sig_unref(s->engine, sig); /* it lives until the next step, or as long as its slot */
    hc_count(&s->engine->counters.first_commits, 1);
    return 1;
}

static void disagree(hc__set *s, uint32_t own_name, const hc__entry_first *from) {
    hc_count(&s->engine->counters.mismatches, 1);
    if (own_name == HC__NONE)
        return;
    char *text = hc__scratch(s->engine, (size_t)from->text_len + 1);
    if (text) {
        memcpy(text, from->text, from->text_len);
        text[from->text_len] = 0;
    }
    hc__finish(s, own_name, HC_MISMATCH, text ? text : "", s->position);
}

static uint32_t commit_first(hc__set *s, const hc__entry_first *from, hc__agreed *agreed) {
    uint32_t name = hc__name_intern(s, from->key), n = 0;
    if (name == HC__NONE)
        return 0;
    s->names.at[name].pinned = 1;
    hc__query_forget(s, from->key);
    note_unnamed(s, hc__unnamed(from->sig.name, from->sig.name_len));
    int is_refusal = hc__refusal_raised(s, name);
    uint32_t own_name = own_share(s, name, HC__ON_FIRST, -1);
    if (from->outcome == HC__DISAGREED)
        disagree(s, own_name, from);
    else
        n = agree_first(s, name, own_name, from, agreed);
    if (s->names.at[name].first)
        hc__first_drop(s, s->names.at[name].first); /* T10 */
    if (is_refusal) {
        hc__refusal_settled(s, name);
        hc__join_owed(s);
    }
    s->names.at[name].pinned = 0;
    hc__name_forget(s, name);
    return n;
}

/* ---- the entry ----------------------------------------------------------------------------------- */

static uint32_t count_commits(const hc__entry *entry) {
    uint64_t bits;
    uint32_t n = entry->nfirsts;
    for (uint32_t i = 0; i < entry->commit.n; i++) {
        hc__column_word(entry->commit, i, &bits);
        for (; bits; bits &= bits - 1)
            n++;
    }
    return n;
}

static void end_with(hc__set *s, const hc__entry *entry) { /* L6 */
    if (entry->flags & HC__F_JOINALL)
        hc__join_all(s, entry->last_joined);
    if (entry->flags & HC__F_TUNE)
        hc__tune_apply(s, &entry->tuning);
    if (entry->flags & HC__F_PREEMPT) {
        hc_action *action = hc__act(s->engine, HC_AC_PREEMPTED);
        action->set = s->id;
        action->position = s->position;
    }
    if (entry->flags & HC__F_LEAVES)
        hc__keep_leaver(s, &entry->leaver);
    if (entry->flags & HC__F_LEAVE)
        s->end.left = 1;
    if (entry->flags & HC__F_STOP)
        hc__log_end(s);
    hc__leave_check(s);
}

void hc__log_apply(hc__set *s, const hc__entry *entry) {
    hc_engine *e = s->engine;
    uint32_t room = count_commits(entry), n;
    hc__agreed *agreed = hc__scratch(e, (room + 1) * sizeof *agreed);
    if (!agreed)
        return;
    s->position++;
    hc_count(&e->counters.entries, 1);
    e->retime = 1;
    if (entry->flags & HC__F_RENUMBER) /* L0 */
        hc__renumber(s);
    free_conflicting(s, entry->conflict);         /* L1 */
    n = commit_slots(s, entry, agreed);           /* L2: before L3, which may rename a slot */
    for (uint32_t i = 0; i < entry->nfirsts; i++) /* L3 */
        n += commit_first(s, &entry->firsts[i], &agreed[n]);
    hc__fuse(s, agreed, n);              /* L4 */
    if (s->slots.freed == s->position) { /* L5 */
        hc__join_void(s);
        hc__raise_again(s);
        hc__join_again(s);
        hc__slots_clear_gone(s);
    }
    if (s->pending.unnamed.settled == s->position) {
        hc__renumber_void(s);
        hc__join_owed(s);
    }
    end_with(s, entry);
    hc__touch(s);
}

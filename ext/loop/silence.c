/* SPDX-License-Identifier: Apache-2.0
 *
 * silence.c - this rank's list of ranks without a sign of life, and its text for reports.
 *
 * A rank finds some of them itself (node_life.c, heartbeat.c); its neighbours in the tree and the leader of its node
 * report others. It keeps a reported entry only for a short time and never reports it back to its source. So an entry
 * disappears everywhere soon after the silence ends.
 */
#include "loop/state.h"
#include "loop/watch.h"

#include <stdio.h>
#include <string.h>

#define NAMED 4 /* silent ranks in a text */

static const char *const how[HC__SILENCES] = {
    [HC__SILENT] = "has given no sign of life",
    [HC__AWAY] = "has not called into hpccoll",
    [HC__DEBUGGED] = "has been stopped by a debugger (state t)",
    [HC__STOPPED] = "has been stopped (state T)",
};

/* ---- the list -------------------------------------------------------------------------------------- */

static hc__silent *find(hc_loop *loop, int32_t rank) {
    for (uint32_t i = 0; i < loop->watch.silent.count; i++)
        if (loop->watch.silent.of[i].rank == rank)
            return &loop->watch.silent.of[i];
    return NULL;
}

static void drop(hc_loop *loop, hc__silent *silent) {
    *silent = loop->watch.silent.of[--loop->watch.silent.count];
}

void hc__silence_end(hc_loop *loop, int32_t rank) {
    hc__silent *silent = loop->watch.silent.count ? find(loop, rank) : NULL;
    if (silent)
        drop(loop, silent);
}

/* A more specific kind replaces an entry; otherwise only the entry's source may renew it. */
void hc__silence_note(hc_loop *loop, const hc__silent *news, uint64_t now) {
    hc__silent *silent = find(loop, news->rank);
    int is_new = !silent || news->kind > silent->kind;
    if (news->rank == loop->config.engine.rank || (silent && news->kind < silent->kind))
        return;
    if (silent && !is_new && silent->from != news->from && news->from != HC__OWN)
        return;
    if (!silent) {
        if (loop->watch.silent.count == HC__SILENT_MOST)
            return;
        silent = &loop->watch.silent.of[loop->watch.silent.count++];
        *silent = *news;
    }
    uint64_t since = silent->since < news->since ? silent->since : news->since;
    uint8_t was_new = silent->is_new;
    *silent = *news;
    silent->is_new = was_new;
    silent->since = since;
    silent->at = now;
    if (is_new) {
        loop->watch.silent.listed_at = 0;
        silent->is_new = 1;
    }
}

void hc__silence_expire(hc_loop *loop, uint64_t now) {
    for (uint32_t i = loop->watch.silent.count; i-- > 0;)
        if (now - loop->watch.silent.of[i].at > 4 * loop->watch.ask_every)
            drop(loop, &loop->watch.silent.of[i]);
}

/* ---- the text -------------------------------------------------------------------------------------- */

void hc__silence_describe(hc_loop *loop, uint64_t now) {
    char who[HC_WHO];
    size_t len = 0, room = sizeof loop->watch.silent.text;
    uint32_t n = 0;
    loop->watch.silent.text[0] = 0;
    for (int kind = HC__SILENCES; kind-- > HC__SILENT;) /* the most specific kind first */
        for (uint32_t i = 0; i < loop->watch.silent.count && len < room; i++) {
            const hc__silent *silent = &loop->watch.silent.of[i];
            if (silent->kind == kind && ++n <= NAMED)
                len += (size_t)snprintf(loop->watch.silent.text + len, room - len, "%s%s %s for %llu s",
                                        len ? "; " : "", hc_who(&loop->ranks.processes, silent->rank, who), how[kind],
                                        (unsigned long long)((now - silent->since) / 1000000000ull));
        }
    if (n > NAMED && len < room)
        snprintf(loop->watch.silent.text + len, room - len, "; and %u more", n - NAMED);
}

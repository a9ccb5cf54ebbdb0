/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the engine's memory: what lasts, and what is lent until the next step.
 *
 * Running out is noted (starved) and turned into one failure of the World at the end of the step: a replica
 * that has missed a part of an entry must not go on.
 */
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

#define KEEP_LENT 16384u /* kept between steps */
#define KEEP_ACTIONS 256u

void *hc__alloc(hc_engine *e, size_t bytes) {
    void *at = calloc(1, bytes);
    if (at)
        e->bytes += bytes;
    else
        e->starved = 1;
    return at;
}

void hc__free(hc_engine *e, void *at, size_t bytes) {
    if (!at)
        return;
    e->bytes -= bytes;
    free(at);
}

void *hc__resize(hc_engine *e, void *at, size_t old_bytes, size_t new_bytes) {
    uint8_t *moved = realloc(at, new_bytes);
    if (!moved) {
        e->starved = 1;
        return NULL;
    }
    if (new_bytes > old_bytes)
        memset(moved + old_bytes, 0, new_bytes - old_bytes);
    e->bytes += new_bytes - old_bytes;
    return moved;
}

void *hc__lend(hc_engine *e, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    hc__lent *block = e->lent;
    if (!block || block->room - block->used < bytes) {
        size_t room = block ? 2 * block->room : 512;
        while (room < bytes)
            room *= 2;
        hc__lent *fresh = malloc(sizeof *fresh + 16 + room);
        if (!fresh) {
            e->starved = 1;
            return NULL;
        }
        e->bytes += sizeof *fresh + 16 + room;
        *fresh = (hc__lent){.next = block, .room = room};
        e->lent = block = fresh;
    }
    uintptr_t base = ((uintptr_t)(block + 1) + 15) & ~(uintptr_t)15;
    void *at = (uint8_t *)base + block->used;
    block->used += bytes;
    return at;
}

const char *hc__lend_text(hc_engine *e, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = hc__lend(e, n);
    if (!copy)
        return "";
    memcpy(copy, text, n);
    return copy;
}

static void lent_drop(hc_engine *e, hc__lent *block) {
    e->bytes -= sizeof *block + 16 + block->room;
    free(block);
}

/* The newest block is the largest: it alone is kept, unless it is too large to keep. */
void hc__lend_reset(hc_engine *e) {
    hc__lent *block = e->lent;
    if (block) {
        while (block->next) {
            hc__lent *older = block->next;
            block->next = older->next;
            lent_drop(e, older);
        }
        block->used = 0;
        if (block->room > KEEP_LENT) {
            lent_drop(e, block);
            e->lent = NULL;
        }
    }
    e->nactions = 0;
    uint32_t keep = e->actions_reserved;
    int is_large = e->actions_room > KEEP_ACTIONS && e->actions_room > keep;
    hc_action *fewer = is_large ? realloc(e->actions, keep * sizeof *fewer) : NULL;
    if (fewer) {
        e->bytes -= (e->actions_room - keep) * sizeof *fewer;
        e->actions = fewer;
        e->actions_room = keep;
    }
}

void hc__lend_free(hc_engine *e) {
    while (e->lent) {
        hc__lent *next = e->lent->next;
        lent_drop(e, e->lent);
        e->lent = next;
    }
}

static int grow_actions(hc_engine *e, uint32_t wanted) {
    uint32_t room = 4;
    while (room < wanted)
        room *= 2;
    hc_action *more = hc__resize(e, e->actions, e->actions_room * sizeof *more, room * sizeof *more);
    if (!more)
        return 0;
    e->actions = more;
    e->actions_room = room;
    return 1;
}

int hc__act_reserve(hc_engine *e, uint32_t actions) {
    if (e->actions_room < actions && !grow_actions(e, actions))
        return 0;
    if (e->actions_reserved < actions)
        e->actions_reserved = actions;
    return 1;
}

static hc_action *begin(hc_action *action, int kind) {
    memset(action, 0, sizeof *action);
    action->kind = (uint8_t)kind;
    action->peer = -1;
    return action;
}

hc_action *hc__act(hc_engine *e, int kind) {
    hc_action *action = &e->spare;
    if (e->nactions == e->actions_room)
        grow_actions(e, e->actions_room + 1);
    if (e->nactions < e->actions_room)
        action = &e->actions[e->nactions++];
    return begin(action, kind);
}

void hc__act_withdraw(hc_engine *e, int kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->nactions; i++)
        if (e->actions[i].kind != kind)
            e->actions[n++] = e->actions[i];
    e->nactions = n;
}

hc_action *hc__act_surely(hc_engine *e, int kind) {
    hc_action *action = hc__act(e, kind);
    return action == &e->spare ? begin(&e->actions[e->nactions - 1], kind) : action;
}

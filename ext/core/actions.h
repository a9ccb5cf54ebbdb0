/* SPDX-License-Identifier: Apache-2.0
 *
 * actions.h - adds actions to a step.
 */
#pragma once

#include "core/base.h"

typedef struct hc__actions {
    hc_action *at;
    uint32_t count, room;
    uint32_t reserved; /* room kept for a failure */
    hc_action spare;   /* takes an action when memory is gone */
} hc__actions;

/* A new action, zeroed, its peer -1. When memory is gone it is the spare one, which is not in the list, so callers need
 * no check. */
hc_action *hc__act(hc_engine *, int kind);
/* The same, but always in the list, at worst in place of another action: the end of a World must be reported. */
hc_action *hc__act_surely(hc_engine *, int kind);
/* Removes this step's actions of a kind. */
void hc__act_withdraw(hc_engine *, int kind);
/* Makes room for `actions` that lasts. 0: no memory. */
int hc__act_reserve(hc_engine *, uint32_t actions);
void hc__actions_reset(hc_engine *); /* the next step begins */
void hc__actions_free(hc_engine *);

/* The bytes must live until the next step. */
void hc__send_up(hc_engine *, int32_t parent, const uint8_t *, size_t);
void hc__send_down(hc_engine *, int32_t child, const uint8_t *, size_t);

/* COMPLETE; the text must live until the next step. */
hc_action *hc__complete(hc_engine *, uint64_t ticket, int status, const char *text, uint64_t position);

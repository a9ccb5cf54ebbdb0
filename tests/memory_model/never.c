/* SPDX-License-Identifier: Apache-2.0
 *
 * never.c - functions that the explored files name and that no scenario calls; so their types do not matter.
 */
#include "memory_model/explorer.h"

#define NEVER(name)                       \
    void name(void);                      \
    void name(void) {                     \
        mm_check(0, #name " was called"); \
    }

NEVER(hc__equal_say)
NEVER(hc__loop_fail)
NEVER(hc__loop_fail_of_memory)
NEVER(hc__loop_fail_to_move)
NEVER(hc__p2p_borrow)
NEVER(hc__p2p_take)
NEVER(hc__plan_take)
NEVER(hc__run_build)
NEVER(hc__set_queue_add)
NEVER(hc__set_queue_push)
NEVER(hc__set_queue_remove)
NEVER(hc__votes_decline)
NEVER(hc__votes_next)
NEVER(hc__votes_message)
NEVER(hc__votes_take)
NEVER(hc__votes_take_request)
NEVER(hc__watch_wait)
NEVER(hc_loop_shortcut_end)
NEVER(hc_loop_shortcut_wait)
NEVER(hc_loop_vote)
NEVER(hc_loop_vote_wait)
NEVER(hc_p2p_forget)
NEVER(hc_p2p_message)

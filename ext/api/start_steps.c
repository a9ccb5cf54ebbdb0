/* SPDX-License-Identifier: Apache-2.0
 *
 * start_steps.c - see start_steps.h.
 */
#include "api/codes.h"
#include "api/start_steps.h"

static int outcome(const hc_rendezvous *r, int status) {
    return status < 0 ? hc__error(status, "the World was not made: %s", *r->why ? r->why : hc_status_text(status))
                      : HC_OK;
}

int hc__start_agree(hc_rendezvous *r, int status, const char *why) {
    return outcome(r, hc_rendezvous_agree(r, status, why));
}

int hc__start_exchange(hc_rendezvous *r, const void *mine, size_t bytes, void *all) {
    return outcome(r, all ? hc_rendezvous_allgather(r, mine, bytes, all) : HC_NO_MEMORY);
}

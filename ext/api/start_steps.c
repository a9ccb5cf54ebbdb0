/* SPDX-License-Identifier: Apache-2.0
 *
 * start_steps.c - see start_steps.h.
 */
#include "api/codes.h"
#include "api/start_steps.h"

int hc__start_outcome(const hc_rendezvous *r, int status, const char *why) {
    const char *text = *why ? why : *r->why ? r->why : hc_status_text(status);
    return status < 0 ? hc__error(status, "the World was not made: %s", text) : HC_OK;
}

int hc__start_agree(hc_rendezvous *r, int status, const char *why) {
    char text[HC_EXCHANGE_WHY];
    const hc_exchange exchange = hc_rendezvous_exchange(r);
    status = hc_exchange_agree(&exchange, status, why, text);
    return hc__start_outcome(r, status, text);
}

int hc__start_exchange(hc_rendezvous *r, const void *mine, size_t bytes, void *all) {
    return hc__start_outcome(r, all ? hc_rendezvous_allgather(r, mine, bytes, all) : HC_NO_MEMORY, "");
}

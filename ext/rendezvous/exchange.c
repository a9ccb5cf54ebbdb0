/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c - see exchange.h.
 */
#include "rendezvous/exchange.h"

#include "core/hc.h"

#include <stdio.h>
#include <stdlib.h>

#define REASON (HC_EXCHANGE_WHY - 20)

static int32_t first_failed(const int32_t *statuses, int32_t size) {
    for (int32_t rank = 0; rank < size; rank++)
        if (statuses[rank] < 0)
            return rank;
    return -1;
}

/* A rank has failed: all ranks exchange their reasons, and get that of `failed`. */
static int take_reason(const hc_exchange *exchange, int32_t failed, const char *mine, char text[HC_EXCHANGE_WHY]) {
    char reason[REASON], (*all)[REASON] = calloc((size_t)exchange->size, sizeof *all);
    if (!all)
        return HC_NO_MEMORY;
    snprintf(reason, sizeof reason, "%s", mine);
    int status = exchange->allgather(exchange->of, "hpccoll.agreed (why)", reason, sizeof reason, all);
    if (status >= 0)
        snprintf(text, HC_EXCHANGE_WHY, "rank %d: %s", (int)failed, all[failed]);
    free(all);
    return status;
}

int hc_exchange_agree(const hc_exchange *exchange, int status, const char *why, char text[HC_EXCHANGE_WHY]) {
    int32_t mine = status, *all = calloc((size_t)exchange->size, sizeof *all);
    text[0] = 0;
    if (!all)
        return HC_NO_MEMORY;
    int outcome = exchange->allgather(exchange->of, "hpccoll.agreed", &mine, sizeof mine, all);
    int32_t failed = outcome < 0 ? -1 : first_failed(all, exchange->size);
    if (failed >= 0) {
        outcome = take_reason(exchange, failed, status < 0 && why && *why ? why : hc_status_text(status), text);
        outcome = outcome < 0 ? outcome : all[failed];
    }
    free(all);
    return outcome;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c - writes a rank into a text, in the form of all reports and errors.
 */
#include "core/who.h"

void hc__put_who(hc__text *text, const hc_processes *processes, int32_t number, int32_t rank) {
    hc__put_int(text, number);
    if (!processes || !processes->hosts || rank < 0)
        return;
    hc__put(text, " (host ");
    hc__put(text, processes->hosts[processes->host_of[rank]]);
    hc__put(text, ", pid ");
    hc__put_int(text, processes->pids[rank]);
    hc__put(text, ")");
}

const char *hc_who_in_set(const hc_processes *processes, int32_t set_rank, int32_t rank, char text[HC_WHO]) {
    hc__text on = hc__text_on(text, HC_WHO);
    hc__put(&on, "rank ");
    hc__put_who(&on, processes, set_rank, rank);
    return text;
}

const char *hc_who(const hc_processes *processes, int32_t rank, char text[HC_WHO]) {
    return hc_who_in_set(processes, rank, rank, text);
}

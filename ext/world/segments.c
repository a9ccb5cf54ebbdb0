/* SPDX-License-Identifier: Apache-2.0
 *
 * segments.c - see segments.h.
 */
#include "world/segments.h"

#include <stdio.h>

/* What a rank does for a segment: it creates it, attaches to it, or only takes part in the agreement. */
enum part { CREATES, ATTACHES, LOOKS_ON };

static int share(const hc_exchange *exchange, const char *name, size_t bytes, enum part part, hc_segment *segment,
                 char why[HC_EXCHANGE_WHY]) {
    char reason[HC_EXCHANGE_WHY] = "";
    *segment = (hc_segment){.fd = -1};
    int status = part == CREATES ? hc_segment_create(segment, name, bytes, reason, sizeof reason) : HC_OK;
    status = hc_exchange_agree(exchange, status, reason, why);
    if (status >= 0) {
        reason[0] = 0;
        status = part == ATTACHES ? hc_segment_attach(segment, name, bytes, reason, sizeof reason) : HC_OK;
        status = hc_exchange_agree(exchange, status, reason, why);
    }
    if (part == CREATES)
        hc_segment_unlink(name);
    if (status < 0)
        hc_segment_close(segment);
    return status;
}

int hc_node_control_segment(const hc_job *job, const hc_exchange *exchange, hc_segment *segment,
                            char why[HC_EXCHANGE_WHY]) {
    char name[64];
    snprintf(name, sizeof name, "/hpccoll-%s-node-%d", job->nonce, (int)job->node_of[job->rank]);
    return share(exchange, name, hc_node_control_bytes(job->local_size), job->local_rank == 0 ? CREATES : ATTACHES,
                 segment, why);
}

int hc_members_segment(const hc_job *job, const hc_exchange *exchange, const char *what, const int32_t *members,
                       int32_t size, size_t bytes, hc_segment *segment, char why[HC_EXCHANGE_WHY]) {
    int32_t first = -1;
    enum part part = LOOKS_ON;
    char name[80];
    for (int32_t i = 0; i < size; i++) {
        int32_t member = members ? members[i] : i;
        if (job->node_of[member] != job->node_of[job->rank])
            continue;
        first = first < 0 ? member : first;
        if (member == job->rank)
            part = member == first ? CREATES : ATTACHES;
    }
    snprintf(name, sizeof name, "/hpccoll-%s-%s-%d", job->nonce, what, (int)first);
    return share(exchange, name, bytes, part, segment, why);
}

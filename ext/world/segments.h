/* SPDX-License-Identifier: Apache-2.0
 *
 * segments.h - shared memory of the ranks of a node: one creates it and the others attach to it, in two agreed steps.
 *
 * All ranks of the exchange call each function, also those that get no segment. OK; or the same status on all, and why:
 * "rank 3: ..."; "": the exchange has the text.
 */
#pragma once

#include "rendezvous/exchange.h"
#include "world/job.h"

/* The node control segment of a job that knows its nodes. */
int hc_node_control_segment(const hc_job *, const hc_exchange *, hc_segment *, char why[HC_EXCHANGE_WHY]);
/* A segment of `bytes` for the members on each node; a rank that is no member gets none. `what`: names it. `members`:
 * World ranks; NULL: all ranks. */
int hc_members_segment(const hc_job *, const hc_exchange *, const char *what, const int32_t *members, int32_t size,
                       size_t bytes, hc_segment *, char why[HC_EXCHANGE_WHY]);

/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - persistent operations, and their starts that the driver runs.
 */
#pragma once

#include "loop/batch.h"

enum hc__plan_state { HC__OVER, HC__WITH_CALLER, HC__WITH_LOOP };

struct hc_plan {
    hc_loop *loop;
    hc_handle *handle;
    hc_data *data;            /* NULL: a message */
    hc__run *run;             /* NULL: a message */
    hc_piece *pieces;         /* the batch's pieces before a start; the data plane writes results to the batch's */
    int32_t peer;             /* of a message; HC_ANY_PEER in a receive */
    uint8_t by_caller, state; /* state: the caller alone uses it */
};

void hc__plan_take(hc_loop *, hc_handle *);
int hc__plans_test(hc_loop *); /* 1: something moved */
void hc__plans_stop(hc_loop *, uint32_t set);
void hc__plans_abandon(hc_loop *);
void hc__plans_break(hc_loop *, int status, const char *text);
void hc__plans_watch(hc_loop *, uint64_t now);

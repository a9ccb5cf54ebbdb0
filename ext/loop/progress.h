/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h - the driver's iterations.
 */
#pragma once

#include "loop/loop.h"

int hc__progress_once(hc_loop *); /* 1: something moved */
void hc__progress_in(hc_loop *);  /* only takes submitted requests */
void hc__progress_out(hc_loop *); /* only sends queued control messages */

/* perform.c */
int hc__loop_step(hc_loop *, hc_event *); /* stamps the time, steps, performs */

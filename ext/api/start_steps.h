/* SPDX-License-Identifier: Apache-2.0
 *
 * start_steps.h - exchanges of the start, whose failure is the error that the World was not made.
 */
#pragma once

#include "rendezvous/rendezvous.h"

/* As hc_exchange_agree() and hc_rendezvous_allgather(): OK, or a status (error set). `all` NULL: this rank has no
 * memory. */
int hc__start_agree(hc_rendezvous *, int status, const char *why);
int hc__start_exchange(hc_rendezvous *, const void *mine, size_t bytes, void *all);
/* Sets the error of a step of the start, unless `status` is OK. `why`: "": the rendezvous has the text. Returns the
 * status. */
int hc__start_outcome(const hc_rendezvous *, int status, const char *why);

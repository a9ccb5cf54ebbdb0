/* SPDX-License-Identifier: Apache-2.0
 *
 * nets.h - the net between the nodes of a World: over MPI or UCX.
 */
#pragma once

#include "api/base.h"
#include "rendezvous/rendezvous.h"

/* Whether a net of this World is MPI's, which sets the threads that may drive it: with the knob net=auto that of a
 * World of a communicator. */
int hc__net_is_mpi(const hc__base *);
/* Makes the net; all ranks call it. `comm`: the program's communicator, or NULL. OK, or a status (error set). */
int hc__net_make(hc__base *, hc_rendezvous *, const void *comm, int one_machine);

/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h - starts a World: reports of the ranks, nodes, net.
 */
#pragma once

#include "api/base.h"
#include "rendezvous/rendezvous.h"

/* Makes the loop of this rank and the set of all ranks; all ranks call it. `comm`: the program's communicator, of which
 * the World is made; or NULL. `wrong`: OK, or the status of this rank's settings (error set), which all ranks get. OK,
 * or a status (error set). */
int hc__start(hc__base *, hc_rendezvous *, const void *comm, int wrong);

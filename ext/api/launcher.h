/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher.h - the rendezvous of the processes that a launcher has started, without MPI.
 */
#pragma once

#include "api/settings.h"
#include "rendezvous/rendezvous.h"

/* Finds how this process was started. OK; or a status (error set). */
int hc__launcher_rendezvous(const hc_rendezvous_terms *, hc_rendezvous **);

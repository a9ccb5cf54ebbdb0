/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h - starts a World: reports of the ranks, nodes, net.
 */
#ifndef HC_API_START_H
#define HC_API_START_H

#include "api/base.h"

/* Makes the loop of this rank and the set of all ranks; all ranks call it. `net`: over the program's communicator
 * `comm`, only for the start; NULL: this rank is alone. `wrong`: OK, or the status of this rank's settings (error set),
 * which all ranks get. OK, or a status (error set). */
int hc__start(hc__base *, hc_net *net, const void *comm, int wrong);

#endif

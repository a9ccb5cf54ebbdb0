/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_net.h - a net over UCX, opened at run time: what the boundary needs of it.
 *
 * A net is made in two steps, because its ranks must know each other's addresses: hc_ucx_net_new() on each of them,
 * an exchange of what hc_ucx_net_address() gives, and hc_ucx_net_meet().
 */
#ifndef HC_UCX_NET_H
#define HC_UCX_NET_H

#include "transport/net/net.h"

#define HC_UCX_WHY 256 /* room for a reason */

/* Opens a library, once per process; HC_OK or why not. NULL: the one that is in the process already. After the first
 * success it is the library of all nets, whatever is named later. */
int hc_ucx_open(const char *file, char why[HC_UCX_WHY]);
/* The version, as a text, and the file of the library that is open. */
const char *hc_ucx_version(void);
const char *hc_ucx_file(void);

/* `settings`: names (UCX's, without UCX_) and values in turn, the last name NULL; they hold for this net alone, above
 * what the environment says. HC_OK, or a status and why. */
int hc_ucx_net_new(int32_t rank, int32_t size, const char *const *settings, hc_net **, char why[HC_UCX_WHY]);
/* Valid until hc_ucx_net_meet(). */
const void *hc_ucx_net_address(hc_net *, size_t *bytes);
/* The addresses of all ranks, which are copied, a number that all of them know and no earlier net had, and how long
 * messages are best (hc_net), the same on all of them; sends nothing. The net may be used when all ranks have returned
 * from this. */
int hc_ucx_net_meet(hc_net *, uint16_t generation, int64_t message_bytes, const void *const *addresses,
                    const size_t *bytes);
/* UCX's own description of what the net may use; to be freed by the caller, NULL: out of memory. */
char *hc_ucx_net_info(hc_net *);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_net.h - the interface of a net over UCX, which is opened at run time.
 *
 * A net is made in steps, because its ranks must know each other's addresses: hc_ucx_net_new() on each rank, an
 * exchange of the results of hc_ucx_net_address(), and hc_ucx_net_connect().
 */
#pragma once

#include "transport/net/net.h"

#define HC_UCX_WHY 256 /* room for a reason */

/* Opens a library, once per process: HC_OK, or a status and why. NULL: the UCX that is already in the process. After
 * the first success all nets use this library, whatever file later calls name. */
int hc_ucx_open(const char *file, char why[HC_UCX_WHY]);
/* The version, as text, and the file of the open library. */
const char *hc_ucx_version(void);
const char *hc_ucx_file(void);

/* `settings`: alternating names (UCX's, without UCX_) and values, the last name NULL. They hold for this net only, and
 * override the environment. HC_OK, or a status and why. */
int hc_ucx_net_new(int32_t rank, int32_t size, const char *const *settings, hc_net **, char why[HC_UCX_WHY]);
/* Valid until hc_ucx_net_connect(). */
const void *hc_ucx_net_address(hc_net *, size_t *bytes);
/* Gives the net the addresses of all ranks (copied), a generation that no earlier net had, and whether all ranks have
 * an RDMA transport; the last two are the same on all ranks. Sends nothing. Use the net only after all ranks have
 * returned from this. */
int hc_ucx_net_connect(hc_net *, uint16_t generation, int has_rdma, const void *const *addresses, const size_t *bytes);
/* The net's transports between hosts and their devices: "rc_mlx5/mlx5_0:1, tcp/eth0". `has_rdma`: one of them is not
 * TCP. The caller frees it; NULL: out of memory. */
char *hc_ucx_net_devices(hc_net *, int *has_rdma);

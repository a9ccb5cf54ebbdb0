/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_interfaces.h - which network interfaces of this machine lead to the other machines of a job.
 *
 * A communication library often chooses a wrong interface by default: docker0, which has the same address on every host
 * (a decoy), the loopback, or a network that only some hosts share.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* An interface with an IPv4 address. */
typedef struct hc_interface {
    char name[16];
    uint32_t address, mask; /* in the byte order of this machine */
    uint32_t machine;       /* any number that ranks which see the same interfaces share */
    uint32_t is_up;
} hc_interface;

/* Reads the interfaces of this machine, with `machine` 0. Returns their number, or a status; the caller frees `*found`.
 */
int hc_interfaces_read(hc_interface **found);
/* Chooses those of the machine `mine` that are up: the names, networks or addresses in `wanted`
 * ("eth0,10.1.0.0/16,10.2.0.1"); if it is "", those of networks that all machines share, else those of the routes to
 * the other machines; all where there is one machine. Decoys and loopbacks are left out. Writes "eth0,eth1" to `names`,
 * "" if there is none. OK, or a status. `all`: of all machines, in any order, the same on all of them. */
int hc_interfaces_choose(const hc_interface *all, int n, uint32_t mine, const char *wanted, char *names, size_t space);
/* Whether `wanted` has a word with a slash that is no network, as "10.1.0.0/33"; it is written to `word`. */
int hc_interfaces_no_network(const char *wanted, char word[64]);
/* Writes the ports of InfiniBand and RoCE adapters that are up, as UCX names them: "mlx5_0:1,mlx5_1:1". */
void hc_interfaces_infiniband(char *names, size_t space);

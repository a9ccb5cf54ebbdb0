/* SPDX-License-Identifier: Apache-2.0
 *
 * cores.h - the cores that the ranks of a node may use, whether they are enough, and which caches they share.
 */
#pragma once

#include <stdint.h>

#define HC_CORES_MOST 2048 /* processors of a machine */

/* The cores of one process. */
typedef struct hc_cores {
    uint64_t word[HC_CORES_MOST / 64]; /* its affinity mask: bit n is processor n */
    uint64_t group;                    /* the control group of the quota, as a hash */
    uint32_t l3;                       /* 1 + the first processor of the L3 that all its cores share; 0: not known */
    uint32_t quota;                    /* thousandths of a core, for all processes of the group; 0: no limit */
} hc_cores;

/* Reads the cores of the calling thread's process. */
void hc_cores_read(hc_cores *);
/* The strictest quota, in thousandths of a core, of the process whose /proc/self/cgroup is `own`, below the file system
 * `root` of control groups; 0: no limit. *group: the hash of its folder. */
uint32_t hc_cores_quota(const char *root, const char *own, uint64_t *group);
/* The L3 as in hc_cores.l3, from the system's folder of processors. */
uint32_t hc_cores_l3(const hc_cores *, const char *processors);
int32_t hc_cores_count(const hc_cores *);

/* Ranks, and the cores that they may use. `shared`: there are fewer cores than ranks. */
typedef struct hc_crowd {
    int32_t ranks;
    double cores;
    uint8_t shared, by_quota; /* by_quota: the limit is a control group's quota */
} hc_crowd;

/* The most crowded group of `n` ranks: the ranks whose masks lie within one mask, or that share a quota; all ranks if
 * no group is crowded. `machine`: the number of ranks on the machine, of which these are a typical part; `online`: the
 * number of its processors. */
hc_crowd hc_cores_crowd(const hc_cores *const *, int32_t n, int32_t machine, int32_t online);

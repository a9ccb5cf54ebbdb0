/* SPDX-License-Identifier: Apache-2.0
 *
 * node_order.h - where the nodes of a job stand in the network, and their order along it.
 *
 * The stages of a sum between nodes begin with the nearest numbers (net/stages.c), so the order decides which bytes
 * cross the links between switches. It changes no rank: it only numbers the nodes inside the data planes.
 */
#pragma once

#include <stdint.h>

/* Where an address comes from. If all ranks have one of one kind, the nodes are ordered by it; else by HOST.
 *    NAME   how it is called              a group       groups */
#define HC_ADDRESSES(X)                                      \
    X(HOST, "host names", "", "")                            \
    X(FILE, "the file HPCCOLL_NODE_FILE", "group", "groups") \
    X(SWITCH, "Slurm's topology", "switch", "switches")      \
    X(BLOCK, "Slurm's topology", "block", "blocks")          \
    X(XNAME, "Cray's xnames", "cabinet", "cabinets")

enum hc_address_kind {
#define X(name, ...) HC_ADDRESS_##name,
    HC_ADDRESSES(X)
#undef X
        HC_ADDRESS_KINDS
};

/* The levels of a node from the top of the network down, and the node: "core/leaf3/n12". Its group is what stands
 * before the last "/": the nodes of a group share a leaf switch, or are as near. */
#define HC_ADDRESS_BYTES 128
typedef struct hc_address {
    int32_t kind;
    char text[HC_ADDRESS_BYTES];
} hc_address;

/* The facts that a process has about its node. What is not known is "", or, but for the xname, NULL. */
typedef struct hc_address_facts {
    const char *host;                  /* never NULL */
    const char *file;                  /* lines of a host and its levels from the top down; "#" begins a comment */
    const char *slurm, *slurm_pattern; /* SLURM_TOPOLOGY_ADDR, SLURM_TOPOLOGY_ADDR_PATTERN */
    const char *xname;                 /* the contents of HC_XNAME_FILE; NULL: it is read */
} hc_address_facts;
#define HC_XNAME_FILE "/etc/cray/xname"

/* The best address: from the file if there is one, else from Slurm, else from Cray, else the host's name. */
hc_address hc_address_of(const hc_address_facts *);
const char *hc_address_called(int kind); /* "Slurm's topology" */

/* ---- the order --------------------------------------------------------------------------------------------- */

/* The place of a node. */
typedef struct hc_node_place {
    int32_t position; /* along the network, from 0 */
    int32_t group;    /* from 0, along the network */
} hc_node_place;

/* The places of n nodes by the texts of their addresses, with numbers in natural order ("n2" before "n10"). At each
 * level the groups with the most nodes, which are whole, come before the others, which the allocation has cut. Equal
 * texts keep the order of the nodes. Returns the number of groups, or NO_MEMORY. */
int32_t hc_nodes_order(const char *const *texts, int32_t n, hc_node_place *places);

/* What the ranks of a job have reported about its nodes. */
typedef struct hc_node_reports {
    const char *const *hosts, *const *addresses; /* of the lowest rank of each node */
    int32_t n;
    int32_t kind;          /* of the addresses */
    const char *differing; /* if the ranks have addresses of several kinds: which, in words; else NULL or "" */
    const char *file;      /* HPCCOLL_NODE_FILE; "": not given */
} hc_node_reports;

/* What orders the nodes. */
typedef struct hc_node_order {
    int32_t kind;          /* HC_ADDRESS_HOST: the hosts' names, not the addresses */
    hc_node_place *places; /* from malloc(); NULL: all texts are equal, so that the lowest ranks order the nodes */
    char said[96];         /* in words; "": no places */
    char why[1024];        /* why host names do, although some rank knows more; "": it is not so */
} hc_node_order;

/* Orders the nodes by their addresses, if all ranks have one of one kind and no two hosts have the same; else by the
 * hosts' names. OK, or NO_MEMORY. */
int hc_nodes_choose(const hc_node_reports *, hc_node_order *);

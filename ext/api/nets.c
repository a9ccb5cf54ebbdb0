/* SPDX-License-Identifier: Apache-2.0
 *
 * nets.c - makes the net between the nodes of a World, over MPI or UCX, as hpccoll/net does for Python.
 */
#include "api/codes.h"
#include "api/nets.h"
#include "api/start_steps.h"

#include "transport/net/ucx_net.h"
#include "rendezvous/ucx_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hc__net_is_mpi(const hc__base *base) {
    return strcmp(base->settings.net, "mpi") == 0 || (base->mpi && strcmp(base->settings.net, "ucx") != 0);
}

/* ---- MPI --------------------------------------------------------------------------------------------------- */

static int make_mpi(hc__base *base, hc_rendezvous *r, const void *comm, int one_machine) {
    const char *why = "MPI_Comm_idup did not end in time, or failed";
    int status = HC_UNSUPPORTED;
    if (base->mpi)
        status = base->mpi->comm_duplicate(comm, r->timeout, base->comm);
    else
        why = "net=mpi (HPCCOLL_NET), and this World was not made of an MPI communicator: hpccoll_world_from_mpi() "
              "makes such a World";
    if (status >= 0)
        status = base->mpi->net_new(base->comm, one_machine, &base->job->net);
    if (status >= 0)
        snprintf(base->nodes.net, sizeof base->nodes.net, "MPI of the family of %s", base->mpi->name);
    return hc__start_agree(r, status, why);
}

/* ---- UCX --------------------------------------------------------------------------------------------------- */

/* The UCX that the process has loaded, else the named one, else the system's. */
static int open_ucx(const hc__base *base, char why[HC_UCX_WHY]) {
    const char *named = base->settings.ucx_library;
    return hc_ucx_open(*named ? named : "libucp.so.0", why);
}

static int make_ucx(hc__base *base, hc_rendezvous *r) {
    char why[HC_UCX_WHY] = "";
    int status = hc__start_agree(r, open_ucx(base, why), why);
    if (status < 0)
        return status;
    const hc_exchange exchange = hc_rendezvous_exchange(r);
    const hc_ucx_terms terms = {
        .rank = r->rank,
        .interface = base->settings.interface,
        .by_user = hc__settings_variable("UCX_NET_DEVICES") != NULL,
        .generation = (uint16_t)strtoul(base->job->nonce + 12, NULL, 16), /* 16 of the World's random bits */
    };
    char text[HC_EXCHANGE_WHY];
    status = hc_ucx_net_make(&exchange, &terms, &base->job->net, text);
    if (status >= 0)
        hc_ucx_net_describe(base->job->net, terms.by_user, base->nodes.net, sizeof base->nodes.net);
    return hc__start_outcome(r, status, text);
}

int hc__net_make(hc__base *base, hc_rendezvous *r, const void *comm, int one_machine) {
    return hc__net_is_mpi(base) ? make_mpi(base, r, comm, one_machine) : make_ucx(base, r);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * net_contract_local.c - the contract of hc_net, over threads: net_contract_local RANKS
 */
#include "transport/net/local.h"
#include "net_contract.h"

static hc_net *nets[MAX_RANKS];

static void check_rank(int32_t rank) {
    check_net(nets[rank]);
    check_too_long(nets[rank]);
    check_net(nets[rank]); /* nothing is left over from the first time */
}

int main(int argc, char **argv) {
    int32_t n = argc > 1 ? atoi(argv[1]) : 2;
    CHECK(hc_local_net_new(n, nets) == HC_OK, "%d nets", n);
    run_threads(n, check_rank);
    for (int32_t r = 0; r < n; r++)
        nets[r]->ops->free(nets[r]);
    printf("ok\n");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * nets.c - scenarios of local.c, the net between threads: messages from and to memory that is used again at once.
 */
#include "memory_model/scenarios.h"
#include "transport/net/local.h"

enum { MESSAGES = 3, TAG = 1 };

static hc_net *nets[MM_THREADS];
static int32_t *buffers[MM_THREADS];

static void make_nets(int ranks) {
    mm_check(hc_local_net_new(ranks, nets) == HC_OK, "nets");
    for (int q = 0; q < ranks; q++)
        buffers[q] = mm_shared(sizeof *buffers[q]);
}

static void nets_of_two(void) {
    make_nets(2);
}

static void nets_of_three(void) {
    make_nets(3);
}

static void tear_down(void) {} /* the threads free their nets */

static void end(int rank, hc_net_request **request) {
    int status;
    while ((status = nets[rank]->ops->test(nets[rank], request, NULL, NULL)) == HC_IDLE)
        mm_wait();
    mm_check(status == HC_DONE, "a message");
}

static hc_net_request *send(int rank, int to, int32_t value) {
    hc_net_request *request = NULL;
    *buffers[rank] = value;
    mm_check(nets[rank]->ops->isend(nets[rank], to, TAG, buffers[rank], sizeof value, &request) == HC_OK, "a send");
    return request;
}

static hc_net_request *receive(int rank) {
    hc_net_request *request = NULL;
    *buffers[rank] = -1;
    int status = nets[rank]->ops->irecv(nets[rank], HC_ANY_PEER, TAG, buffers[rank], sizeof(int32_t), &request);
    mm_check(status == HC_OK, "a receive");
    return request;
}

/* All others send to the last rank. */
static void run_messages(int rank, int ranks) {
    int32_t sum = 0;
    for (int m = 0; m < (rank == ranks - 1 ? MESSAGES * (ranks - 1) : MESSAGES); m++) {
        hc_net_request *request = rank == ranks - 1 ? receive(rank) : send(rank, ranks - 1, 1 + 100 * rank);
        end(rank, &request);
        sum += *buffers[rank];
    }
    mm_check(rank < ranks - 1 || sum == (ranks == 2 ? MESSAGES : 102 * MESSAGES), "the sum of all messages");
    nets[rank]->ops->free(nets[rank]);
}

static void run_two(int rank) {
    run_messages(rank, 2);
}

static void run_three(int rank) {
    run_messages(rank, 3);
}

/* After a cancel the memory is the caller's again, even if the message was under way. */
static void run_cancel(int rank) {
    hc_net_request *request = rank == 0 ? send(0, 1, 1) : receive(1);
    if (rank == 1 || nets[0]->ops->test(nets[0], &request, NULL, NULL) == HC_IDLE)
        mm_check(nets[rank]->ops->cancel(nets[rank], &request) == HC_OK, "cancelled");
    *buffers[rank] = 2;
    nets[rank]->ops->free(nets[rank]);
}

const mm_scenario mm_local_net = {"local-2", 2, nets_of_two, run_two, tear_down, 2, 1};
const mm_scenario mm_local_net_of_three = {"local-3", 3, nets_of_three, run_three, tear_down, 1, 1};
const mm_scenario mm_local_cancel = {"cancel", 2, nets_of_two, run_cancel, tear_down, 2, 2};

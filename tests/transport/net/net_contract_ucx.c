/* SPDX-License-Identifier: Apache-2.0
 *
 * net_contract_ucx.c - the contract of hc_net, over UCX between processes: net_contract_ucx LIBRARY RANKS [CASE]
 *
 * Without a case all ranks run the contract and end together. "killed": the last rank is killed with messages under
 * way. "silent": the last rank is stopped, and the others end their nets without it. "leaves": the last rank ends its
 * net without the others, which is no loss. "cancels": rank 0 takes a large message back that rank 1 has not asked for.
 */
#include "net_contract.h"
#include "transport/net/ucx_parts.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE ((size_t)16 << 20)
#define ADDRESS_ROOM 4096

/* What the processes share. */
static struct {
    pthread_barrier_t barrier;
    size_t bytes[MAX_RANKS];
    char addresses[MAX_RANKS][ADDRESS_ROOM];
    atomic_int rank_0_has_ended;
} *shared;

static int32_t ranks;

/* How many connections the net has closed, by force and in order, since count_closes(). */
static struct {
    ucs_status_ptr_t (*close)(ucp_ep_h, const ucp_request_param_t *);
    int by_force, in_order;
} counted;

static ucs_status_ptr_t close_and_count(ucp_ep_h endpoint, const ucp_request_param_t *how) {
    if (how->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS && how->flags & UCP_EP_CLOSE_FLAG_FORCE)
        counted.by_force++;
    else
        counted.in_order++;
    return counted.close(endpoint, how);
}

static void count_closes(void) {
    counted.close = hc__ucx.ucp_ep_close_nbx;
    hc__ucx.ucp_ep_close_nbx = close_and_count;
}

static void meet_all(void) {
    pthread_barrier_wait(&shared->barrier);
}

static hc_net *make_net(int32_t rank, uint16_t generation) {
    static const char *const settings[] = {"TLS", "tcp,self", NULL}; /* as between hosts */
    const void *addresses[MAX_RANKS];
    char why[HC_UCX_WHY];
    hc_net *net = NULL;
    size_t bytes = 0;
    CHECK(hc_ucx_net_new(rank, ranks, settings, &net, why) == HC_OK, "%s", why);
    const void *address = hc_ucx_net_address(net, &bytes);
    CHECK(bytes <= ADDRESS_ROOM, "an address of %zu bytes", bytes);
    memcpy(shared->addresses[rank], address, bytes);
    shared->bytes[rank] = bytes;
    meet_all();
    for (int32_t r = 0; r < ranks; r++)
        addresses[r] = shared->addresses[r];
    CHECK(hc_ucx_net_connect(net, generation, 0, addresses, shared->bytes) == HC_OK, "meet");
    meet_all();
    return net;
}

/* Each rank has a connection with each other one. */
static void greet_all(hc_net *net) {
    int32_t out = net->rank, in[MAX_RANKS];
    hc_net_request *sends[MAX_RANKS] = {0}, *receives[MAX_RANKS] = {0};
    for (int32_t r = 0; r < ranks; r++) {
        receives[r] = ask(net, r, 3, &in[r], 4);
        sends[r] = give(net, r, 3, &out, 4);
    }
    for (int32_t r = 0; r < ranks; r++) {
        finish(net, &receives[r], NULL, NULL);
        finish(net, &sends[r], NULL, NULL);
        CHECK(in[r] == r, "rank %d says %d", (int)r, (int)in[r]);
    }
}

/* The last status of a request, within NEVER seconds. */
static int outcome(hc_net *net, hc_net_request **req) {
    int status = HC_IDLE;
    int64_t begun = own_seconds();
    while (status == HC_IDLE || status == HC_MOVED) {
        CHECK(own_seconds() - begun < NEVER, "it never ends");
        status = net->ops->test(net, req, NULL, NULL);
        sched_yield();
    }
    return status;
}

static void check_lost(hc_net *net, hc_net_request **req, const char *what) {
    int status = outcome(net, req);
    CHECK(status == HC_PEER_LOST && !*req, "%s: %s", what, hc_status_name(status));
    CHECK(net->lost == (uint32_t)ranks, "%s: lost %d", what, (int)net->lost - 1);
    CHECK(net->text && strstr(net->text, "its connection ended (UCX: "), "%s", net->text);
}

/* ---- the cases ------------------------------------------------------------------------------------------- */

static void run_contract(hc_net *net) {
    check_net(net);
    check_too_long(net);
    CHECK(net->text && strstr(net->text, "UCX: "), "UCX's own words: %s", net->text);
    check_net(net); /* nothing is left over from the first time */
}

/* Each survivor waits for the lost one in all ways; the others go on among themselves. */
static void run_killed(hc_net *net) {
    int32_t victim = ranks - 1, after = net->rank, got = -1;
    char *out = calloc(LARGE, 1), *in = calloc(LARGE, 1), byte = 0;
    greet_all(net);
    hc_net_request *large = ask(net, victim, 7, in, LARGE), *small = ask(net, victim, 8, &byte, 1);
    hc_net_request *any = ask(net, HC_ANY_PEER, HC_TAG_CONTROL, &byte, 1);
    /* To rank 0 for its receive, which is at the beginning or in the middle; to the victim for nobody. */
    hc_net_request *send = give(net, net->rank == victim ? 0 : victim, net->rank == victim ? 7 : 9, out, LARGE);
    meet_all();
    if (net->rank == victim)
        kill(getpid(), SIGKILL);
    check_lost(net, &small, "a receive");
    check_lost(net, &large, "a receive that had begun");
    check_lost(net, &any, "a receive from any rank");
    check_lost(net, &send, "a send");
    free(out);
    free(in);
    CHECK(net->ops->isend(net, victim, 9, &byte, 1, &send) == HC_PEER_LOST, "a new send");
    CHECK(net->ops->irecv(net, victim, 9, &byte, 1, &send) == HC_PEER_LOST, "a new receive");
    for (int32_t r = 0; r < ranks; r++)
        CHECK(net->lost_peers[r] == (r == victim), "rank %d", (int)r);
    int32_t survivors = ranks - 1, right = (net->rank + 1) % survivors, left = (net->rank + survivors - 1) % survivors;
    hc_net_request *receive = ask(net, left, 11, &got, 4);
    send = give(net, right, 11, &after, 4);
    finish(net, &receive, NULL, NULL);
    finish(net, &send, NULL, NULL);
    CHECK(got == left, "the others go on");
    net->abandoned = 1;
}

/* The last rank is stopped. Rank 0 finds it silent (hc_net.dead) and ends, with a message to it under way: free()
 * closes that one connection by force and the others in order, so that rank 0 has left in order to these ranks, however
 * late they look. */
static void run_silent(hc_net *net) {
    int32_t silent = ranks - 1;
    char *large = calloc(LARGE, 1), byte = 0;
    greet_all(net);
    meet_all();
    net->abandoned = 1;
    if (net->rank == silent) {
        kill(getpid(), SIGSTOP); /* until the others have ended */
    } else if (net->rank == 0) {
        hc_net_request *stuck = give(net, silent, 9, large, LARGE);
        CHECK(net->ops->test(net, &stuck, NULL, NULL) == HC_IDLE, "a stopped rank takes nothing");
        net->dead = (uint32_t)silent + 1;
        count_closes();
        return;
    } else {
        hc_net_request *receive = ask(net, 0, 5, &byte, 1);
        for (time_t begun = time(NULL); !atomic_load(&shared->rank_0_has_ended); usleep(1000))
            CHECK(time(NULL) - begun < NEVER, "rank 0 does not end");
        for (time_t begun = time(NULL); time(NULL) - begun < 2;)
            CHECK(net->ops->test(net, &receive, NULL, NULL) == HC_IDLE, "rank 0 has left in order: %s", net->text);
        CHECK(!net->lost_peers[0], "rank 0 is not lost");
        net->dead = (uint32_t)silent + 1;
    }
    free(large);
}

/* The last rank ends alone, in order: nobody counts it as lost, and what is sent to it is dropped. */
static void run_leaves(hc_net *net) {
    int32_t leaver = ranks - 1;
    char byte = 0, from_any = 0;
    greet_all(net);
    meet_all();
    if (net->rank == leaver) {
        net->abandoned = 1; /* it does not wait for the others */
        return;
    }
    hc_net_request *any = ask(net, HC_ANY_PEER, HC_TAG_CONTROL, &from_any, 1), *named = ask(net, leaver, 5, &byte, 1);
    time_t begun = time(NULL);
    while (time(NULL) - begun < 2) {
        int of_any = net->ops->test(net, &any, NULL, NULL), of_named = net->ops->test(net, &named, NULL, NULL);
        CHECK(of_any == HC_IDLE, "a receive from any rank: %s", hc_status_name(of_any));
        CHECK(of_named == HC_IDLE, "a receive: %s", hc_status_name(of_named));
    }
    hc_net_request *send = give(net, leaver, 5, &byte, 1);
    CHECK(outcome(net, &send) == HC_DONE, "a send to a rank that has gone");
    CHECK(!net->lost_peers[leaver], "it is not lost");
    CHECK(net->ops->cancel(net, &named) == HC_OK && net->ops->cancel(net, &any) == HC_OK, "cancel");
    net->abandoned = 1;
}

/* The buffer of a send that was taken back is free at once; its connection is closed for it. */
static void run_cancels(hc_net *net) {
    char *data = malloc(LARGE), byte = 0;
    CHECK(data, "memory");
    memset(data, 'a', LARGE);
    greet_all(net);
    if (net->rank == 0) {
        hc_net_request *send = give(net, 1, 7, data, LARGE);
        for (int i = 0; i < 100; i++)
            CHECK(net->ops->test(net, &send, NULL, NULL) == HC_IDLE, "nobody asks for it");
        CHECK(net->ops->cancel(net, &send) == HC_OK && !send, "cancel");
    } else if (net->rank == 1) {
        hc_net_request *any = ask(net, HC_ANY_PEER, HC_TAG_CONTROL, &byte, 1);
        for (time_t begun = time(NULL); time(NULL) - begun < 2;) {
            int of_any = net->ops->test(net, &any, NULL, NULL);
            CHECK(of_any == HC_IDLE, "a receive from any rank: %s: rank %d: %s", hc_status_name(of_any),
                  (int)net->lost - 1, net->text);
        }
        CHECK(!net->lost_peers[0], "rank 0 is not lost");
    }
    free(data);
    net->abandoned = 1;
}

static void run_rank(int32_t rank, const char *library, const char *what) {
    char why[HC_UCX_WHY];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(hc_ucx_open(library, why) == HC_OK, "%s", why);
    for (uint16_t generation = 1; generation < 3; generation++) { /* a net after the other */
        hc_net *net = make_net(rank, generation);
        if (!strcmp(what, "killed"))
            run_killed(net);
        else if (!strcmp(what, "silent"))
            run_silent(net);
        else if (!strcmp(what, "leaves"))
            run_leaves(net);
        else if (!strcmp(what, "cancels"))
            run_cancels(net);
        else
            run_contract(net);
        time_t begun = time(NULL);
        net->ops->free(net);
        CHECK(time(NULL) - begun < NEVER / 2, "free() waits");
        CHECK(!counted.close || (counted.by_force == 1 && counted.in_order >= ranks - 2),
              "%d connections closed by force, %d in order", counted.by_force, counted.in_order);
        if (rank == 0)
            atomic_store(&shared->rank_0_has_ended, 1);
        if (!strcmp(what, "killed") || !strcmp(what, "silent"))
            break;
    }
    printf("ok: UCX %s (%s)\n", hc_ucx_version(), hc_ucx_file());
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    const char *what = argc > 3 ? argv[3] : "contract";
    pid_t pids[MAX_RANKS];
    CHECK(argc > 2 && (ranks = atoi(argv[2])) > 0 && ranks <= MAX_RANKS, "LIBRARY RANKS [CASE]");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "memory");
    pthread_barrierattr_t between_processes;
    pthread_barrierattr_init(&between_processes);
    pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &between_processes, (unsigned)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0, "fork");
        if (pids[r] == 0)
            run_rank(r, argv[1], what);
    }
    int wrong = 0;
    for (int32_t r = 0; r < ranks; r++) {
        int status = 0, victim = !strcmp(what, "killed") && r == ranks - 1;
        if (!strcmp(what, "silent") && r == ranks - 1) {
            CHECK(waitpid(pids[r], &status, WUNTRACED) == pids[r] && WIFSTOPPED(status), "it stops itself");
            kill(pids[r], SIGCONT);
        }
        CHECK(waitpid(pids[r], &status, 0) == pids[r], "wait");
        wrong |= victim ? !WIFSIGNALED(status) : status != 0;
    }
    return wrong;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_contract.c - messages of all sizes between all pairs, posted in any order on either side: each meets its receive,
 * in order, whole, and touches nothing beside.
 *
 *     p2p_contract threads|processes SIZE NODE_SIZE SEED MESSAGES
 *
 * With an odd SEED, processes read large messages in each other's memory. Ranks of different "nodes" (of NODE_SIZE
 * ranks) reach each other over the local net; threads only.
 */
#include "transport/net/local.h"
#include "transport/p2p/p2p.h"
#include "transport/ranks.h"

#define TAGS 3
#define ANY_TAG 7 /* messages of this tag are received from any rank */
#define GUARD 16

static uint64_t seed;
static int node_size, p2p_ops, read_memory;
static hc_net *nets[RANKS_MAX];

/* The n-th message of a rank, a function of the seed: every rank knows them all. */
typedef struct plan {
    int to;
    uint32_t set, tag;
    size_t bytes, room; /* of the send, of its receive */
    int exact;          /* the receive takes no shorter message */
    uint64_t content;
} plan;

static plan plan_of(int from, int n, int size) {
    uint64_t h = mix(seed + (uint64_t)from * 1000003 + (uint64_t)n), kind = h >> 32 & 31;
    size_t limit = kind == 0 ? 3000000 : kind < 6 ? 60000 : 300;
    plan p = {.to = (int)(h % (uint64_t)size),
              .set = (uint32_t)(h >> 40 & 1),
              .tag = (uint32_t)(mix(h + 2) % TAGS),
              .bytes = mix(h) % limit,
              .content = mix(h + 1)};
    if (kind == 31)
        p.tag = ANY_TAG;
    if (kind == 9)
        p.bytes = 0;
    p.room = p.tag == ANY_TAG          ? 300
             : kind == 10              ? p.bytes / 2
             : kind >= 11 && kind < 14 ? p.bytes + 1 + h % 20000
                                       : p.bytes;
    p.exact = kind == 11;
    p.bytes = p.tag == ANY_TAG ? 300 : p.bytes;
    return p;
}

typedef struct job {
    hc_p2p_op op;
    plan plan;
    int from, number; /* of a message from any rank: not known yet */
} job;

typedef struct tester {
    rank_place *place;
    hc_control *control;
    hc_p2p *p2p;
    job *jobs;
    int njobs, posted, finished;
} tester;

/* ---- what is posted ------------------------------------------------------------------------------------ */

static void add_job(tester *t, int from, int number, plan p, int receives) {
    job *j = &t->jobs[t->njobs++];
    size_t bytes = receives ? p.room : p.bytes;
    uint8_t *data = malloc(bytes + GUARD);
    memset(data, 0xEE, bytes + GUARD);
    for (size_t i = 0; !receives && i < bytes; i++)
        data[i] = (uint8_t)(p.content + i * 7);
    int32_t peer = !receives ? p.to : p.tag == ANY_TAG ? HC_ANY_PEER : from;
    *j = (job){.plan = p, .from = from, .number = number};
    j->op = (hc_p2p_op){.receives = (uint8_t)receives,
                        .flags = receives && p.exact ? HC_P2P_EXACT : 0,
                        .set = p.set,
                        .tag = p.tag,
                        .peer = peer,
                        .data = data,
                        .bytes = bytes,
                        .owner = j};
}

/* Sends in their order, and the receives of one sender in the same; which of these comes next is chance. */
static void plan_jobs(tester *t) {
    int next[RANKS_MAX + 1] = {0}, size = t->place->size, left = size + 1;
    uint64_t random = mix(seed + 77 + (uint64_t)t->place->rank);
    t->jobs = calloc((size_t)p2p_ops * ((size_t)size + 1), sizeof *t->jobs);
    while (left > 0) {
        random = mix(random + 1);
        int who = (int)(random % (uint64_t)(size + 1)), mine = who == size;
        int from = mine ? t->place->rank : who, n = next[who];
        if (n > p2p_ops)
            continue;
        next[who]++;
        if (n == p2p_ops) {
            left--;
            continue;
        }
        plan p = plan_of(from, n, size);
        if (mine || p.to == t->place->rank)
            add_job(t, from, n, p, !mine);
    }
}

/* ---- what must be so when it is finished --------------------------------------------------------------- */

static void check_content(const tester *t, const job *j, const plan *p) {
    const uint8_t *data = j->op.data;
    CHECK(j->op.received == p->bytes, "rank %d: %llu bytes from %d, expected %zu", t->place->rank,
          (unsigned long long)j->op.received, j->from, p->bytes);
    int fits = p->exact ? p->room == p->bytes : p->room >= p->bytes;
    CHECK(j->op.status == (fits ? HC_OK : HC_RESULT_SIZE), "status %d", j->op.status);
    for (size_t i = 0; i < p->room + GUARD; i++) {
        uint8_t expected = fits && i < p->bytes ? (uint8_t)(p->content + i * 7) : 0xEE;
        CHECK(data[i] == expected, "rank %d: byte %zu of message %d of rank %d", t->place->rank, i, j->number, j->from);
    }
}

static void check(tester *t, job *j) {
    if (!j->op.receives) {
        CHECK(j->op.status == HC_OK, "a send ended with %d", j->op.status);
    } else if (j->plan.tag == ANY_TAG) {
        CHECK(j->op.peer >= 0 && j->op.peer < t->place->size, "from rank %d", j->op.peer);
        const uint8_t *data = j->op.data;
        int known = 0;
        for (int n = 0; n < p2p_ops && !known; n++) {
            plan p = plan_of(j->op.peer, n, t->place->size);
            known = p.tag == ANY_TAG && p.to == t->place->rank && p.set == j->plan.set &&
                    data[0] == (uint8_t)p.content && data[299] == (uint8_t)(p.content + 299 * 7);
        }
        CHECK(known, "rank %d: what came from any rank, %d, was never sent", t->place->rank, j->op.peer);
    } else {
        CHECK(j->op.peer == j->from, "from rank %d", j->op.peer);
        check_content(t, j, &j->plan);
    }
    t->finished++;
}

/* ---- the driver -------------------------------------------------------------------------------------------- */

static int read_messages(tester *t) {
    int32_t from;
    const uint8_t *bytes;
    size_t n;
    int moved = 0, status;
    while ((status = t->control->ops->receive(t->control, &from, &bytes, &n)) == HC_DONE) {
        CHECK(hc_p2p_message(t->p2p, from, bytes, n) == 1, "a message that is not the point-to-point layer's");
        moved = 1;
    }
    CHECK(status >= 0, "receive: %d", status);
    return moved;
}

static int turn(tester *t) {
    int32_t peer;
    hc_p2p_op *done;
    int moved = read_messages(t), status = hc_p2p_progress(t->p2p);
    CHECK(status >= 0, "progress: %d", status);
    moved |= status;
    while ((done = hc_p2p_done(t->p2p))) {
        check(t, done->owner);
        moved = 1;
    }
    do {
        status = t->control->ops->progress(t->control, &peer);
        CHECK(status >= 0, "control: %d", status);
        moved |= status;
    } while (peer >= 0);
    return moved;
}

static void exchange_all(tester *t) {
    uint64_t random = mix(seed + (uint64_t)t->place->rank);
    int several = node_size < t->place->size;
    while (t->finished < t->njobs || t->control->waiting) {
        uint32_t seen = hc_doorbell_listen(t->place->node_control);
        int moved = turn(t);
        random = mix(random + 1);
        for (uint64_t burst = random % 5; burst > 0 && t->posted < t->njobs; burst--) {
            int status = hc_p2p_post(t->p2p, &t->jobs[t->posted++].op);
            CHECK(status == HC_OK, "post: %d", status);
            moved = 1;
        }
        if (!moved && t->posted == t->njobs) {
            int rung = hc_doorbell_sleep(t->place->node_control, seen, several ? 1000000 : 20000000000u);
            CHECK(rung || several, "rank %d: nobody rang for 20 s", t->place->rank);
        }
    }
}

/* What nobody answers is its poster's again. */
static void withdraw(tester *t) {
    uint8_t byte[1] = {0};
    hc_p2p_op lonely = {.receives = 1, .set = 9, .peer = HC_ANY_PEER, .data = byte, .bytes = 1};
    CHECK(hc_p2p_post(t->p2p, &lonely) == HC_OK && !hc_p2p_is_moving(t->p2p), "an open receive moves nothing");
    CHECK(hc_p2p_withdraw(t->p2p, &lonely) == 1, "an open receive can be withdrawn");
    hc_p2p_op wrong = {.peer = t->place->size, .data = byte, .bytes = 1};
    CHECK(hc_p2p_post(t->p2p, &wrong) == HC_INVALID, "no such rank");
    hc_p2p_op unread = {.set = 9, .peer = t->place->rank, .data = byte, .bytes = 1};
    CHECK(hc_p2p_post(t->p2p, &unread) == HC_OK && hc_p2p_done(t->p2p) == &unread, "to oneself");
    hc_p2p_forget(t->p2p, 9);
    CHECK(hc_p2p_post(t->p2p, &lonely) == HC_OK && !hc_p2p_done(t->p2p), "it was to be forgotten");
    hc_p2p_abandon(t->p2p);
}

/* Drives until this operation is finished. */
static void await(tester *t, const hc_p2p_op *op) {
    hc_p2p_op *done = NULL;
    for (int i = 0; done != op; i++) {
        int32_t peer;
        CHECK(!done && i < 20000000, "rank %d: another operation, or none", t->place->rank);
        read_messages(t);
        CHECK(hc_p2p_progress(t->p2p) >= 0 && t->control->ops->progress(t->control, &peer) >= 0, "progress");
        done = hc_p2p_done(t->p2p);
        sched_yield();
    }
}

/* An empty message to one rank, and one from another, which has arrived when this returns. */
static void signal_around(tester *t, uint32_t set, int to, int from) {
    uint8_t none[1];
    hc_p2p_op tell = {.set = set, .peer = to, .data = none},
              hear = {.receives = 1, .set = set, .peer = from, .data = none};
    CHECK(hc_p2p_post(t->p2p, &tell) == HC_OK && hc_p2p_done(t->p2p) == &tell, "a small one travels at once");
    CHECK(hc_p2p_post(t->p2p, &hear) == HC_OK, "post");
    await(t, &hear);
}

/* A large send is taken back, and its memory used again, before its receive is posted: the receive ends with an
 * error, also where the receiver could have read that memory. Around a ring of the node's ranks. */
static void take_back(tester *t) {
    size_t bytes = 100000;
    uint8_t *sent = malloc(bytes), *received = malloc(bytes);
    int rank = t->place->rank, first = rank / node_size * node_size;
    int n = first + node_size < t->place->size ? node_size : t->place->size - first;
    int next = first + (rank - first + 1) % n, previous = first + (rank - first + n - 1) % n;
    hc_p2p_op send = {.set = 8, .peer = next, .data = sent, .bytes = bytes};
    hc_p2p_op receive = {.receives = 1, .set = 8, .peer = previous, .data = received, .bytes = bytes};
    CHECK(hc_p2p_post(t->p2p, &send) == HC_OK && hc_p2p_withdraw(t->p2p, &send) == 1,
          "an announced send is taken back");
    memset(sent, 0xBB, bytes);
    signal_around(t, 9, next, previous); /* a receive posted sooner may copy before the send is taken back */
    CHECK(hc_p2p_post(t->p2p, &receive) == HC_OK, "post");
    await(t, &receive);
    CHECK(receive.status == HC_SHUT_DOWN, "rank %d: a message that was taken back: %d", rank, receive.status);
    signal_around(t, 7, previous, next); /* `sent` lives until its receiver has ended */
    free(sent);
    free(received);
}

static void body(rank_place *place) {
    tester t = {.place = place};
    int32_t local_of[RANKS_MAX];
    for (int q = 0; q < place->size; q++)
        local_of[q] = q / node_size == place->rank / node_size ? q : -1;
    hc_net *net = nets[place->rank];
    CHECK(hc_control_new(place->node_control, net, local_of, place->size, &t.control) == 0, "control");
    CHECK(hc_p2p_new(place->node_control, net, t.control, local_of, place->rank, place->size, &t.p2p) == 0,
          "point-to-point");
    if (read_memory)
        hc_node_control_read_memory(place->node_control);
    plan_jobs(&t);
    exchange_all(&t);
    if (place->size > 1)
        take_back(&t);
    withdraw(&t);
    for (int i = 0; i < t.njobs; i++)
        free(t.jobs[i].op.data);
    free(t.jobs);
    hc_p2p_free(t.p2p);
    t.control->ops->free(t.control);
}

int main(int argc, char **argv) {
    CHECK(argc == 6, "usage: p2p_contract threads|processes SIZE NODE_SIZE SEED MESSAGES");
    read_memory = atoi(argv[4]) % 2;
    int size = atoi(argv[2]);
    node_size = atoi(argv[3]);
    seed = mix(strtoull(argv[4], NULL, 10) + 1);
    p2p_ops = atoi(argv[5]);
    if (node_size < size)
        CHECK(hc_local_net_new(size, nets) == 0, "nets");
    for (int q = 0; q < size && nets[q] != NULL; q++)
        nets[q]->message_bytes = (seed & 1) != 0 ? 4096 : 0;
    ranks_run(argv[1], size, 4096, body);
    for (int q = 0; q < size; q++)
        if (nets[q] != NULL)
            nets[q]->ops->free(nets[q]);
    return 0;
}

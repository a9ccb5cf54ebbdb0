/* SPDX-License-Identifier: Apache-2.0
 *
 * control_contract.c - messages of all sizes between all pairs: whole, in order, none lost, none invented.
 *
 *     control_contract threads|processes SIZE NODE_SIZE SEED MESSAGES
 *
 * Ranks of different "nodes" (of NODE_SIZE ranks) reach each other over the local net; threads only.
 */
#include "transport/net/local.h"
#include "transport/ranks.h"

static uint64_t seed;
static int node_size, messages;
static hc_net *nets[RANKS_MAX];

/* The n-th message of a rank, a function of the seed: every rank knows them all. */
typedef struct message {
    int to;
    size_t bytes;
    uint64_t content;
} message;

static message message_of(int from, int n, int size) {
    uint64_t h = mix(seed + (uint64_t)from * 1000003 + (uint64_t)n), kind = h >> 32 & 31;
    size_t limit = kind == 0 ? 200000 : kind < 4 ? 20000 : 300;
    return (message){(from + 1 + (int)(h % (uint64_t)(size - 1))) % size, mix(h) % limit, mix(h + 1)};
}

typedef struct tester {
    rank_place *place;
    hc_control *control;
    int sent, received, expected;
    int next_of[RANKS_MAX]; /* the number of the next message to expect of each rank */
    int unsaid[RANKS_MAX];  /* messages sent to a rank since its queue was last reported empty */
} tester;

static void skip_to_mine(tester *t, int from) {
    while (t->next_of[from] < messages && message_of(from, t->next_of[from], t->place->size).to != t->place->rank)
        t->next_of[from]++;
}

static void send_one(tester *t) {
    message m = message_of(t->place->rank, t->sent++, t->place->size);
    uint8_t *bytes = malloc(m.bytes + 1);
    for (size_t i = 0; i < m.bytes; i++)
        bytes[i] = (uint8_t)(m.content + i);
    CHECK(t->control->ops->send(t->control, m.to, bytes, m.bytes) == 0, "send");
    memset(bytes, 0xee, m.bytes); /* send took a copy */
    free(bytes);
    t->unsaid[m.to]++;
}

static int receive_one(tester *t) {
    int32_t from;
    const uint8_t *bytes;
    size_t n;
    int status = t->control->ops->receive(t->control, &from, &bytes, &n);
    CHECK(status >= 0, "receive: %d", status);
    if (status != HC_DONE)
        return status;
    CHECK(from >= 0 && from < t->place->size && t->next_of[from] < messages, "a message too many from %d", from);
    message m = message_of(from, t->next_of[from]++, t->place->size);
    CHECK(m.bytes == n, "rank %d: message %d of %d has %zu bytes, expected %zu", t->place->rank, t->next_of[from] - 1,
          from, n, m.bytes);
    for (size_t i = 0; i < n; i++)
        CHECK(bytes[i] == (uint8_t)(m.content + i), "byte %zu of a message from %d", i, from);
    skip_to_mine(t, from);
    t->received++;
    return HC_DONE;
}

static int progress(tester *t, int *unsaid) {
    int32_t peer;
    int status = t->control->ops->progress(t->control, &peer);
    CHECK(status >= 0, "progress: %d", status);
    if (peer >= 0) {
        CHECK(t->unsaid[peer] > 0, "rank %d: SENT for %d, to which nothing was sent", t->place->rank, peer);
        t->unsaid[peer] = 0;
    }
    *unsaid = 0;
    for (int q = 0; q < t->place->size; q++)
        *unsaid += t->unsaid[q];
    return status;
}

static void exchange_all(tester *t) {
    uint64_t random = mix(seed + (uint64_t)t->place->rank);
    int unsaid = 1;
    while (t->sent < messages || t->received < t->expected || unsaid > 0) {
        uint32_t seen = hc_doorbell_listen(t->place->node_control);
        int moved = progress(t, &unsaid);
        random = mix(random + 1);
        for (uint64_t burst = random % 4; burst > 0 && t->sent < messages; burst--)
            send_one(t);
        moved |= receive_one(t);
        if (moved == HC_IDLE && t->sent == messages && (t->received < t->expected || unsaid > 0)) {
            int rung = hc_doorbell_sleep(t->place->node_control, seen,
                                         node_size < t->place->size ? 1000000 : 20000000000u);
            CHECK(rung || node_size < t->place->size, "rank %d: nobody rang for 20 s", t->place->rank);
        }
    }
}

static void body(rank_place *place) {
    tester t = {.place = place};
    int32_t local_of[RANKS_MAX];
    for (int q = 0; q < place->size; q++)
        local_of[q] = q / node_size == place->rank / node_size ? q : -1;
    CHECK(hc_control_new(place->node_control, nets[place->rank], local_of, place->size, &t.control) == 0, "control");
    for (int q = 0; q < place->size; q++) {
        for (int n = 0; q != place->rank && n < messages; n++)
            t.expected += message_of(q, n, place->size).to == place->rank;
        skip_to_mine(&t, q);
    }
    exchange_all(&t);
    uint64_t counted = t.control->local_messages + t.control->net_messages;
    CHECK(counted == (uint64_t)messages, "%llu messages counted", (unsigned long long)counted);
    t.control->ops->free(t.control);
}

int main(int argc, char **argv) {
    CHECK(argc == 6, "usage: control_contract threads|processes SIZE NODE_SIZE SEED MESSAGES");
    int size = atoi(argv[2]);
    node_size = atoi(argv[3]);
    seed = mix(strtoull(argv[4], NULL, 10) + 1);
    messages = atoi(argv[5]);
    if (node_size < size)
        CHECK(hc_local_net_new(size, nets) == 0, "nets");
    ranks_run(argv[1], size, 4096, body);
    for (int q = 0; q < size; q++)
        if (nets[q] != NULL)
            nets[q]->ops->free(nets[q]);
    return 0;
}

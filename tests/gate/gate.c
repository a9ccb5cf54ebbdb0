/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.c - calls through the table of the gate, on 2 ranks: every operation with its result, what is refused, a process
 * set that has ended, and a World after a World.
 */
#include "../loop/worlds.h"
#include "gate/gate.h"

#define P 2

static const hc_gate *const gate = &hc_the_gate;

typedef struct outcome {
    atomic_int calls, status;
    char text[HC_GATE_TEXT];
    int64_t value, out_rows, rows[P];
    int64_t *out;
} outcome;

static void note(void *context, hc_gate_result *result) {
    outcome *o = context;
    snprintf(o->text, sizeof o->text, "%s", result->text);
    o->value = result->value;
    o->out_rows = result->out_rows;
    if (result->rows)
        memcpy(o->rows, result->rows, sizeof o->rows);
    o->out = result->out;
    result->keep = result->out != NULL;
    atomic_store(&o->status, result->status);
    atomic_fetch_add(&o->calls, 1);
}

/* A call with one tensor of int64. */
static hc_gate_call call_of(uint64_t set, int operation, const char *name, const hc_gate_tensor *tensor, outcome *o) {
    *o = (outcome){0};
    return (hc_gate_call){.size = sizeof(hc_gate_call),
                          .set = set,
                          .name = name,
                          .name_len = name ? strlen(name) : 0,
                          .operation = (uint8_t)operation,
                          .reduction = HC_SUM,
                          .wire = HC_WIRE_SAME,
                          .prescale = 1.0,
                          .postscale = 1.0,
                          .ntensors = tensor ? 1 : 0,
                          .tensors = tensor,
                          .done = note,
                          .context = o};
}

static int wait_for(outcome *o) {
    while (!atomic_load(&o->calls))
        usleep(50);
    CHECK(atomic_load(&o->calls) == 1);
    return atomic_load(&o->status);
}

static int run(const hc_gate_call *call, outcome *o) {
    char text[HC_GATE_TEXT] = "";
    int status = gate->begin(call, text);
    if (status < 0)
        fprintf(stderr, "%s\n", text);
    CHECK(status == HC_OK);
    return wait_for(o);
}

static void expect_refusal(const hc_gate_call *call, int status, const char *words) {
    char text[HC_GATE_TEXT] = "";
    int got = gate->begin(call, text);
    if (got != status || !strstr(text, words))
        fprintf(stderr, "%d: %s\n", got, text);
    CHECK(got == status && strstr(text, words));
}

static void reductions(uint64_t set, int32_t rank) {
    outcome o;
    int64_t dims[] = {3}, in[] = {rank, 10, 20 * rank}, out[3] = {0};
    hc_gate_tensor t = {.dtype = HC_INT64, .ndim = 1, .dims = dims, .in = in, .out = out};
    hc_gate_call call = call_of(set, HC_ALLREDUCE, "sum", &t, &o);
    CHECK(run(&call, &o) == HC_OK && out[0] == 1 && out[1] == 20 && out[2] == 20);
    int64_t more[2][3] = {{1, 2, 3}, {4, 5, rank}};
    hc_gate_tensor two[] = {t, t};
    for (int i = 0; i < 2; i++)
        two[i].in = two[i].out = more[i];
    call = call_of(set, HC_ALLREDUCE, "group", two, &o);
    call.ntensors = 2;
    call.group = 1;
    CHECK(run(&call, &o) == HC_OK && more[0][2] == 6 && more[1][0] == 8 && more[1][2] == 1);
    int64_t row[2] = {0};
    t.out = row;
    call = call_of(set, HC_REDUCESCATTER, "share", &t, &o);
    CHECK(run(&call, &o) == HC_OK && (rank ? row[0] == 20 : row[0] == 1 && row[1] == 20));
    t.out = rank ? NULL : out;
    call = call_of(set, HC_REDUCE, "to root", &t, &o);
    call.root = 0;
    CHECK(run(&call, &o) == HC_OK);
    t.out = out;
    call = call_of(set, HC_SCAN, "scan", &t, &o);
    CHECK(run(&call, &o) == HC_OK && out[1] == 10 * (rank + 1));
}

/* Rows of two elements: in a place of the kernel's, and where the library puts them. */
static void gathers(uint64_t set, int32_t rank) {
    outcome o;
    int64_t dims[] = {1 + rank, 2}, in[] = {rank, 1, rank, 2}, out[6] = {0};
    hc_gate_tensor t = {.dtype = HC_INT64, .ndim = 2, .dims = dims, .in = in, .out = out, .out_rows = 3};
    hc_gate_call call = call_of(set, HC_ALLGATHER, "rows", &t, &o);
    CHECK(run(&call, &o) == HC_OK && out[1] == 1 && out[2] == 1 && out[5] == 2 && o.rows[1] == 2);
    t.out = NULL;
    call = call_of(set, HC_ALLGATHER, "rows, new", &t, &o);
    CHECK(run(&call, &o) == HC_OK && o.out_rows == 3 && o.out[5] == 2);
    gate->free_result(o.out);
    t.out = out;
    t.out_rows = 4;
    call = call_of(set, HC_ALLGATHER, "too large", &t, &o);
    CHECK(run(&call, &o) == HC_RESULT_SIZE && strstr(o.text, "'too large': rank"));
    int64_t all[] = {0, 1, 2, 3}, splits[] = {1, 3}, got[6] = {0};
    dims[0] = 4;
    dims[1] = 1;
    t = (hc_gate_tensor){.dtype = HC_INT64, .ndim = 2, .dims = dims, .in = all, .out = got, .out_rows = 2 + 4 * rank};
    call = call_of(set, HC_ALLTOALL, "all to all", &t, &o);
    call.splits = splits;
    call.nsplits = 2;
    CHECK(run(&call, &o) == HC_OK && (rank ? got[0] == 1 && got[5] == 3 : !got[1]) && o.rows[0] == 1 + 2 * rank);
    splits[0] = 2;
    expect_refusal(&call, HC_INVALID, "alltoall 'all to all': the sum of splits is");
    int64_t sums_to_4[] = {INT64_MAX, -INT64_MAX + 4};
    call.splits = sums_to_4;
    expect_refusal(&call, HC_INVALID, "alltoall 'all to all': splits[1] is -");
    call.splits = NULL;
    t.out_rows = INT64_C(1) << 61;
    expect_refusal(&call, HC_INVALID, "negative or too large");
    dims[0] = dims[1] = INT64_C(1) << 32; /* their product is 0 in 64 bits */
    expect_refusal(&call, HC_INVALID, "negative or too large");
}

static void messages(uint64_t set, int32_t rank) {
    outcome sent, received;
    int64_t dims[] = {1}, in = 7 + rank, out = 0;
    hc_gate_tensor t = {.dtype = HC_INT64, .ndim = 1, .dims = dims, .in = &in, .out = &out};
    hc_gate_call send = call_of(set, HC_GATE_SEND, NULL, &t, &sent);
    hc_gate_call receive = call_of(set, HC_GATE_RECEIVE, NULL, &t, &received);
    char text[HC_GATE_TEXT];
    send.root = 1 - rank;
    receive.root = -1;
    send.tag = receive.tag = 5;
    CHECK(gate->begin(&send, text) == HC_OK && gate->begin(&receive, text) == HC_OK);
    CHECK(wait_for(&sent) == HC_OK && wait_for(&received) == HC_OK);
    CHECK(out == 8 - rank && received.value == 1 - rank);
    send.root = 2;
    expect_refusal(&send, HC_INVALID, "send: there is no rank 2: the ranks are 0 to 1");
}

static void bad_input(uint64_t set, int32_t rank) {
    outcome o;
    int64_t dims[] = {3 + rank}, in[4] = {0};
    hc_gate_tensor t = {.dtype = HC_INT64, .ndim = 1, .dims = dims, .in = in, .out = in};
    hc_gate_call call = call_of(set, HC_ALLREDUCE, "shapes", &t, &o);
    CHECK(run(&call, &o) == HC_MISMATCH && strstr(o.text, "shapes"));
    call = call_of(set, HC_ALLREDUCE, "", &t, &o);
    expect_refusal(&call, HC_INVALID, "a name has 1 to 4096 bytes, this one 0");
    call = call_of(set, HC_ALLREDUCE, "half", &t, &o);
    call.prescale = 0.5;
    expect_refusal(&call, HC_UNSUPPORTED, "prescale_factor and postscale_factor are not defined for int64");
    call = call_of(set, HC_BROADCAST, "from nowhere", &t, &o);
    call.root = -1;
    expect_refusal(&call, HC_INVALID, "root is -1");
    call = call_of(set, HC_BARRIER, "with a tensor", &t, &o);
    expect_refusal(&call, HC_INVALID, "it is for 0 tensors, not 1");
}

static uint64_t numbers[2][P];

static void *rank_main(void *argument) {
    hc_loop *loop;
    worlds *w = ((worlds **)argument)[0];
    int32_t rank = *((int32_t **)argument)[1], r = -1, size = -1;
    int second = numbers[0][rank] != 0;
    outcome o;
    loop = worlds_join(w, rank);
    hc_gate_place place = {.loop = loop, .rank = rank, .size = P, .members = w->members};
    uint64_t *number = &numbers[second][rank];
    CHECK(hc_gate_open(&place, 0, number) == HC_OK && *number != HC_GATE_WORLD);
    CHECK(gate->facts(*number, &r, &size, NULL) == HC_OK && r == rank && size == P);
    reductions(*number, rank);
    gathers(*number, rank);
    messages(*number, rank);
    bad_input(*number, rank);
    hc_gate_call barrier = call_of(*number, HC_BARRIER, "barrier", NULL, &o);
    CHECK(run(&barrier, &o) == HC_OK);
    hc_gate_close(loop, 0);
    expect_refusal(&barrier, HC_SHUT_DOWN, "whose process set has ended");
    if (second) {
        barrier.set = numbers[0][rank];
        expect_refusal(&barrier, HC_SHUT_DOWN, "whose process set has ended");
    }
    worlds_leave(w, rank);
    return NULL;
}

static void world(void) {
    worlds w = {.knobs = {.engine = {.cache_capacity = 64, .fusion_threshold = 4096, .raise_window = 2000000},
                          .wire = HC_WIRE_SAME,
                          .background = 1}};
    worlds_prepare(&w, P, 1);
    pthread_t threads[P];
    int32_t ranks[P];
    void *arguments[P][2];
    for (int32_t r = 0; r < P; r++) {
        ranks[r] = r;
        arguments[r][0] = &w;
        arguments[r][1] = &ranks[r];
        pthread_create(&threads[r], NULL, rank_main, arguments[r]);
    }
    for (int32_t r = 0; r < P; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
}

int main(void) {
    hc_gate_call none = {.size = sizeof none, .set = HC_GATE_WORLD};
    expect_refusal(&none, HC_SHUT_DOWN, "there is no World: call hpccoll.init() first");
    world();
    world();
    puts("fine");
    return 0;
}

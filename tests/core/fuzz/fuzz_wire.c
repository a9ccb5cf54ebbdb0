/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_wire.c - arbitrary bytes as control messages to engines in many states (libFuzzer).
 *
 * Input: two bytes for the state, then messages: sender, repairs, length (two bytes), bytes. Whatever arrives,
 * the engine neither crashes nor leaves its memory; a message that it refuses has changed nothing; and it goes
 * on with ordinary events afterwards. The seeds are real messages, each at the state in which it arrived.
 *
 * Most inputs that a fuzzer invents fail at the header. Two bits of every message repair it, so that the parts
 * behind are reached as well.
 */
#include "states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t messages, refused;

static void say_totals(void) {
    fprintf(stderr, "fuzz_wire: %llu messages decoded, %llu of them refused, from %d states\n",
            (unsigned long long)messages, (unsigned long long)refused, states_count());
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    states_make(1000);
    atexit(say_totals);
    return 0;
}

static void must(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_wire: %s\n", what);
    abort();
}

/* Reads all that the actions point to, so that a sanitizer sees what is not there. */
static uint64_t read_actions(const hc_action *a, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t b = 0; b < a[i].nbytes; b++)
            sum += a[i].bytes[b];
        for (const char *t = a[i].text; t && *t; t++)
            sum += (uint8_t)*t;
        for (uint32_t k = 0; k < a[i].nitems; k++) {
            const hc_request *q = a[i].items[k].agreed;
            must(a[i].items[k].first + a[i].items[k].count <= q->ntensors, "an item beyond its request");
            for (uint32_t c = 0; c < q->name_len; c++)
                sum += (uint8_t)q->name[c];
            for (uint32_t t = 0; t < q->ntensors; t++)
                for (int d = 0; d < q->tensors[t].ndim; d++)
                    sum += (uint64_t)q->tensors[t].dims[d];
        }
        for (uint32_t k = 0; k < a[i].nranks; k++)
            sum += (uint64_t)a[i].ranks[k];
    }
    return sum;
}

static volatile uint64_t sink;

static int step(hc_engine *e, const hc_event *v) {
    const hc_action *a = NULL;
    size_t n = 0;
    int status = hc_step(e, v, &a, &n);
    sink += read_actions(a, n);
    if (status)
        must(n == 0 || v->kind != HC_EV_MESSAGE, "a refused message has actions");
    return status;
}

enum { REPAIR_HEADER = 1, REPAIR_POSITION = 2, FRAME = 4 };

static void repair(uint8_t *message, size_t n, int repairs) {
    if (n >= 8 && (repairs & REPAIR_HEADER)) { /* version, kind, two zeros, a set that may exist */
        message[0] = 1;
        message[1] = (uint8_t)(1 + message[1] % 9);
        message[2] = message[3] = message[5] = message[6] = message[7] = 0;
        message[4] %= 4;
    }
    if (n >= 16 && (repairs & REPAIR_POSITION))
        memset(message + 9, 0, 7);
}

static void message(hc_engine *e, const state *s, int peer, int repairs, const uint8_t *bytes, size_t n) {
    hc_counters before, after;
    hc_engine_counters(e, &before);
    uint8_t *exact = malloc(n ? n : 1); /* no byte behind the message may be read */
    memcpy(exact, bytes, n);
    repair(exact, n, repairs);
    hc_event v = {.kind = HC_EV_MESSAGE, .now = s->events[s->n - 1].now + 1, .peer = peer, .bytes = exact, .nbytes = n};
    messages++;
    if (step(e, &v)) {
        refused++;
        hc_engine_counters(e, &after);
        must(!memcmp(&before, &after, sizeof before), "a refused message has been counted");
    }
    free(exact);
    const char *wrong = hc_engine_validate(e);
    if (wrong)
        fprintf(stderr, "fuzz_wire: %s\n", wrong);
    must(!wrong, "an invariant is broken");
}

/* Ordinary life goes on: the rest of the recording, time, an end. */
static void go_on(hc_engine *e, const state *s) {
    for (int i = s->n; i < s->total && i < s->n + 8; i++)
        step(e, &s->events[i]);
    uint64_t later = s->events[s->total - 1].now + ((uint64_t)1 << 40);
    step(e, &(hc_event){.kind = HC_EV_TICK, .now = later, .peer = -1});
    step(e, &(hc_event){.kind = HC_EV_FLUSH, .now = later, .peer = -1});
    step(e, &(hc_event){.kind = HC_EV_STOP, .now = later, .peer = -1});
    hc_engine_quiet(e);
    hc_engine_memory(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    const state *s = state_at((data[0] | data[1] << 8) % states_count());
    hc_engine *e = state_enter(s);
    if (!e)
        return 0;
    for (size_t at = 2; at < size;) {
        if (size - at < FRAME)
            break;
        int peer = data[at] % (STATE_RANKS + 1) - (data[at] == 255), repairs = data[at + 1];
        size_t n = (size_t)(data[at + 2] | data[at + 3] << 8);
        at += FRAME;
        if (n > size - at)
            n = size - at;
        message(e, s, peer, repairs, data + at, n);
        at += n;
    }
    go_on(e, s);
    hc_engine_free(e);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_wire.c - arbitrary bytes as control messages to engines in many states (libFuzzer).
 *
 * Input: two bytes for the state, then messages: sender, length (two bytes), bytes. Whatever arrives, the
 * engine neither crashes nor leaves its memory; a message that it refuses has changed nothing; and it goes
 * on with ordinary events afterwards. The seeds are real messages, each at the state in which it arrived.
 */
#include "states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t messages, refused;

static void say_totals(void) {
    fprintf(stderr, "fuzz_wire: %llu messages decoded, %llu of them refused, from %d states\n", (unsigned long long)messages,
            (unsigned long long)refused, states_count());
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    states_make(1000);
    atexit(say_totals);
    return 0;
}

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "fuzz_wire: %s\n", what);
    abort();
}

/* Reads all that the actions point to, so that a sanitizer sees what is not there. */
static uint64_t read_actions(const hc_action *a, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t b = 0; b < a[i].nbytes; b++) sum += a[i].bytes[b];
        for (const char *t = a[i].text; t && *t; t++) sum += (uint8_t)*t;
        for (uint32_t k = 0; k < a[i].nitems; k++) {
            const hc_request *q = a[i].items[k].agreed;
            must(a[i].items[k].first + a[i].items[k].count <= q->ntensors, "an item beyond its request");
            for (uint32_t c = 0; c < q->name_len; c++) sum += (uint8_t)q->name[c];
            for (uint32_t t = 0; t < q->ntensors; t++)
                for (int d = 0; d < q->tensors[t].ndim; d++) sum += (uint64_t)q->tensors[t].dims[d];
        }
        for (uint32_t k = 0; k < a[i].nranks; k++) sum += (uint64_t)a[i].ranks[k];
    }
    return sum;
}

static volatile uint64_t sink;

static int step(hc_engine *e, const hc_event *v) {
    const hc_action *a = NULL;
    size_t n = 0;
    int status = hc_step(e, v, &a, &n);
    sink += read_actions(a, n);
    if (status) must(n == 0 || v->kind != HC_EV_MESSAGE, "a refused message has actions");
    return status;
}

static void message(hc_engine *e, const state *s, int peer, const uint8_t *bytes, size_t n) {
    hc_counters before, after;
    hc_engine_counters(e, &before);
    uint8_t *exact = malloc(n ? n : 1); /* no byte behind the message may be read */
    memcpy(exact, bytes, n);
    hc_event v = {.kind = HC_EV_MESSAGE, .now = s->events[s->n - 1].now + 1, .peer = peer, .bytes = exact, .nbytes = n};
    messages++;
    if (step(e, &v)) {
        refused++;
        hc_engine_counters(e, &after);
        must(!memcmp(&before, &after, sizeof before), "a refused message has been counted");
    }
    free(exact);
}

/* Ordinary life goes on: the rest of the recording, time, an end. */
static void go_on(hc_engine *e, const state *s) {
    for (int i = s->n; i < s->total && i < s->n + 8; i++) step(e, &s->events[i]);
    uint64_t later = s->events[s->total - 1].now + ((uint64_t)1 << 40);
    step(e, &(hc_event){.kind = HC_EV_TICK, .now = later, .peer = -1});
    step(e, &(hc_event){.kind = HC_EV_FLUSH, .now = later, .peer = -1});
    step(e, &(hc_event){.kind = HC_EV_STOP, .now = later, .peer = -1});
    hc_engine_quiet(e);
    hc_engine_memory(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const state *s = state_at((data[0] | data[1] << 8) % states_count());
    hc_engine *e = state_enter(s);
    if (!e) return 0;
    for (size_t at = 2; at < size;) {
        int peer = data[at] % (STATE_RANKS + 1) - (data[at] == 255);
        size_t n = at + 2 < size ? (size_t)(data[at + 1] | data[at + 2] << 8) : 0;
        at = at + 3 < size ? at + 3 : size;
        if (n > size - at) n = size - at;
        message(e, s, peer, data + at, n);
        at += n;
    }
    go_on(e, s);
    hc_engine_free(e);
    return 0;
}

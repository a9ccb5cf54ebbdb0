/* SPDX-License-Identifier: Apache-2.0
 *
 * mutate.c - the fuzzer's inputs without libFuzzer: real messages, changed at random, for any compiler.
 *
 *     mutate INPUTS < seeds
 *
 * It does not look at coverage, so it finds less; `make check` runs libFuzzer (soak.py).
 */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 12, SEEDS = 1 << 20, STATES = 1 << 12 };

static uint8_t seeds[SEEDS], input[2 * MOST];
static size_t at[STATES + 1], nseeds; /* where each seed begins */

/* Every seed stands behind its length (two bytes, the lower first). */
static void read_seeds(void) {
    int low, high;
    while (nseeds < STATES && (low = getchar()) != EOF && (high = getchar()) != EOF) {
        size_t n = (size_t)(low | high << 8);
        if (n > MOST || at[nseeds] + n > SEEDS || fread(seeds + at[nseeds], 1, n, stdin) != n)
            return;
        at[nseeds + 1] = at[nseeds] + n;
        nseeds++;
    }
}

/* A seed with some bytes changed, some left out and some twice. */
static size_t invent(sim_random *rng) {
    size_t seed = sim_below(rng, (uint32_t)nseeds), size = at[seed + 1] - at[seed];
    memcpy(input, seeds + at[seed], size);
    for (int i = sim_between(rng, 0, 6); i > 0 && size > 0; i--) {
        size_t where = sim_below(rng, (uint32_t)size), some = sim_below(rng, 9);
        some = some > size - where ? size - where : some;
        switch (sim_below(rng, 6)) {
        case 0:
            memmove(input + where, input + where + some, size - where - some);
            size -= some;
            break;
        case 1:
            memmove(input + where + some, input + where, size - where);
            size += some;
            break;
        case 2:
            input[where] = (uint8_t)sim_next(rng);
            break;
        default:
            input[where] ^= (uint8_t)(1u << sim_below(rng, 8));
        }
    }
    return size;
}

int main(int argc, char **argv) {
    sim_random rng = {1};
    read_seeds();
    LLVMFuzzerInitialize(&argc, &argv);
    for (long inputs = argc > 1 && nseeds ? atol(argv[1]) : 0; inputs > 0; inputs--) {
        size_t size = invent(&rng);
        LLVMFuzzerTestOneInput(input, size);
    }
    return nseeds == 0;
}

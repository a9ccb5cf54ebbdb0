/* SPDX-License-Identifier: Apache-2.0
 *
 * starve.c - an engine that runs out of memory says so, everywhere, and loses nothing: no crash, no leak, and
 * every request ends.
 *
 *     starve PROGRAMS
 *
 * In every program one allocation inside an engine fails, a random one. Either the event is refused as a whole
 * (NO_MEMORY for that request or set, and the run is given up here), or the World is broken, on all ranks.
 */
#include "../starving.h"
#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t countdown;
static int starved;

static int fails(void) {
    if (!sim_in_engine || countdown == 0 || --countdown)
        return 0;
    return starved = 1;
}

/* A request (or join) that was refused alone; no oracle can judge what the others make of it. */
static int refused(const sim_machine *m) {
    for (int x = 0; x < m->program->nhandles; x++)
        if (m->result[x].state == SIM_ENDED && m->result[x].status == HC_NO_MEMORY)
            return 1;
    return m->duplicate == HC_NO_MEMORY;
}

static int any_failed(const sim_machine *m) {
    for (int r = 0; r < m->program->ranks; r++)
        if (m->rank[r].failed)
            return 1;
    return 0;
}

enum outcome { UNTOUCHED, REFUSED, BROKEN, WRONG, OUTCOMES };

static int run(uint64_t seed) {
    static sim_machine m;
    static sim_program p;
    sim_arena arena = {0};
    sim_random rng = {seed};
    const sim_options o = {1, 8, -1, -1, 0, 0, -1, 0, 0, -1}; /* no lazy rank, stop, stall or other failure */
    memset(&m, 0, sizeof m);
    sim_program_make(&p, &arena, &rng, &o);
    p.late_sets = 0;
    starved = 0;
    countdown = 0;
    sim_machine_open(&m, &p, &arena, &rng);
    countdown = 1 + sim_below(&rng, 1 + sim_below(&rng, 600));
    m.failing = 1; /* FAILED is allowed */
    sim_machine_run(&m, 4000000);
    int outcome = any_failed(&m) ? BROKEN : refused(&m) ? REFUSED : UNTOUCHED;
    if (outcome == BROKEN)
        sim_judge(&m);
    if (outcome == UNTOUCHED && starved)
        sim_break(&m, "memory ran out and nobody was told");
    if (m.broken && outcome != REFUSED) {
        fprintf(stderr, "program %llu: %s\n", (unsigned long long)seed, m.why);
        outcome = WRONG;
    }
    sim_machine_close(&m);
    sim_arena_reset(&arena);
    return outcome;
}

int main(int argc, char **argv) {
    uint64_t programs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, count[OUTCOMES] = {0};
    for (uint64_t seed = 1; seed <= programs && !count[WRONG]; seed++)
        count[run(seed)]++;
    printf("%llu programs had memory enough, in %llu a request was refused, in %llu the World broke\n",
           (unsigned long long)count[UNTOUCHED], (unsigned long long)count[REFUSED], (unsigned long long)count[BROKEN]);
    return count[WRONG] != 0 || !count[BROKEN];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c - runs many random programs on virtual ranks and stops at the first that goes wrong.
 *
 *     sim --programs 100000 --seed 1 --ranks 1-64
 *
 * A failure ends with one line that plays the same run again, with every event and action printed.
 */
#include "judge.h"
#include "stalls.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static char replay[512]; /* the command that repeats the run in hand; for the signal handler too */

static void crashed(int signal) {
    const char *what = signal == SIGPROF ? "\nno end within a minute of CPU time; " : "\ncrash; ";
    ssize_t ignored = write(2, what, strlen(what));
    ignored = write(2, replay, strlen(replay));
    (void)ignored;
    _exit(3);
}

typedef struct totals {
    uint64_t programs, steps, messages, batches, entries, mismatches, evictions, conflicts, stalls, deadlocks, unended;
} totals;

static void add(totals *t, const sim_machine *m) {
    t->programs++;
    t->steps += m->steps;
    t->messages += m->messages;
    for (int s = 0; s < m->program->nsets; s++)
        t->batches += (uint64_t)m->log[s].n;
    for (int r = 0; r < m->program->ranks; r++) {
        hc_counters c;
        hc_engine_counters(m->rank[r].engine, &c);
        t->entries += c.entries;
        t->mismatches += c.mismatches;
        t->evictions += c.evictions;
        t->conflicts += c.conflicts;
        t->stalls += (uint64_t)m->rank[r].nstalled;
    }
    for (int x = 0; x < m->program->nhandles; x++)
        t->unended += m->result[x].state == SIM_PENDING;
    for (int r = 0; r < m->program->ranks; r++)
        for (int h = 0; h < m->program->threads[r]; h++)
            if (!m->rank[r].dead && m->rank[r].pc[h] != m->program->thread[r][h].n) {
                t->deadlocks++;
                return;
            }
}

static int run(uint64_t seed, const sim_options *o, int trace, totals *t) {
    static sim_machine m;
    static sim_program p;
    sim_arena arena = {0};
    sim_random rng = {seed};
    memset(&m, 0, sizeof m);
    m.trace = trace;
    sim_program_make(&p, &arena, &rng, o);
    if (trace)
        sim_program_print(&p);
    if (sim_machine_open(&m, &p, &arena, &rng) && sim_machine_run(&m, 4000000)) {
        sim_judge(&m);
        if (p.stall && !m.broken)
            sim_stalls(&m);
    }
    if (!m.broken)
        add(t, &m);
    else
        fprintf(stderr, "program %llu: %s\n%s", (unsigned long long)seed, m.why, replay);
    sim_machine_close(&m);
    sim_arena_reset(&arena);
    return !m.broken;
}

static void usage(void) {
    fprintf(stderr,
            "sim [--programs N] [--seed S] [--ranks LOW-HIGH] [--capacity C] [--one-stream 0|1]\n"
            "    [--lazy 0|1] [--stop 0|1] [--joins 0|1] [--stall 0|1] [--fail 0|1] [--unnamed 0|1]\n    [--trace]\n");
    exit(2);
}

static int *option(sim_options *o, const char *name) {
    struct {
        const char *name;
        int *value;
    } table[] = {{"--capacity", &o->capacity}, {"--one-stream", &o->one_stream}, {"--lazy", &o->lazy},
                 {"--stop", &o->stop},         {"--joins", &o->joins},           {"--stall", &o->stall},
                 {"--fail", &o->fail},         {"--unnamed", &o->unnamed}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return table[i].value;
    usage();
    return NULL;
}

int main(int argc, char **argv) {
    sim_options o = {1, SIM_RANKS, -1, -1, -1, -1, -1, -1, -1, -1};
    uint64_t programs = 1000, seed = 1;
    int trace = 0;
    char flags[256] = "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--trace")) {
            trace = 1;
            continue;
        }
        if (i + 1 == argc)
            usage();
        const char *name = argv[i], *value = argv[++i];
        if (!strcmp(name, "--programs"))
            programs = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--seed"))
            seed = strtoull(value, NULL, 10);
        else {
            if (strcmp(name, "--ranks"))
                *option(&o, name) = atoi(value);
            else if (sscanf(value, "%d-%d", &o.low, &o.high) != 2 || o.low < 1 || o.high > SIM_RANKS || o.low > o.high)
                usage();
            size_t n = strlen(flags);
            snprintf(flags + n, sizeof flags - n, " %s %s", name, value);
        }
    }
    signal(SIGPROF, crashed);
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    signal(SIGFPE, crashed);
    totals t = {0};
    for (uint64_t i = 0; i < programs; i++) {
        snprintf(replay, sizeof replay, "replay: %s --programs 1 --seed %llu%s --trace\n", argv[0],
                 (unsigned long long)(seed + i), flags);
        setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = 60}}, NULL); /* CPU time */
        if (!run(seed + i, &o, trace, &t)) {
            fprintf(stderr, "after %llu programs\n", (unsigned long long)(i + 1));
            return 1;
        }
    }
    printf("%llu programs, all as on an ideal machine: %llu events, %llu messages, %llu batches, %llu "
           "entries applied, %llu mismatches, "
           "%llu evictions, %llu conflicts, %llu stall reports, %llu programs that hang by themselves "
           "(%llu requests without an end)\n",
           (unsigned long long)t.programs, (unsigned long long)t.steps, (unsigned long long)t.messages,
           (unsigned long long)t.batches, (unsigned long long)t.entries, (unsigned long long)t.mismatches,
           (unsigned long long)t.evictions, (unsigned long long)t.conflicts, (unsigned long long)t.stalls,
           (unsigned long long)t.deadlocks, (unsigned long long)t.unended);
    return 0;
}

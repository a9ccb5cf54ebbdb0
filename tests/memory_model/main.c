/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - searches for an execution of a scenario that goes wrong.
 *
 *     explore all SCENARIO PREEMPTIONS STALE MOST    every execution within these bounds, at most so many
 *     explore random SCENARIO SEED EXECUTIONS        random ones without bounds
 *     explore outcomes PROGRAM                       the outcomes of a program of litmus.c, or what is wrong
 *     explore plants MOST RANDOM SCENARIO...         takes away each part of each order, one at a time, and says which
 *                                                    of the scenarios finds that
 */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCENARIOS_MOST 64

extern char __executable_start[];

/* The result of a search. */
typedef struct found {
    uint64_t executions, too_long;
    int is_wrong, is_complete;
} found;

static found search(const mm_scenario *scenario, uint64_t most) {
    found result = {0, 0, 0, 0};
    while (result.executions < most && !result.is_wrong && !result.is_complete) {
        enum mm_end end = mm_execute(scenario);
        result.executions++;
        result.too_long += end == MM_TOO_LONG;
        result.is_wrong = end == MM_WRONG;
        if (!result.is_wrong)
            result.is_complete = !mm_choices_next();
    }
    return result;
}

/* Shows the last execution again, operation by operation. */
static void show_last(const mm_scenario *scenario) {
    printf("%s\n", mm_wrong());
    mm_choices_repeat();
    mm_is_tracing = 1;
    mm_execute(scenario);
    mm_is_tracing = 0;
}

static int report(const mm_scenario *scenario, found result) {
    if (result.is_wrong)
        show_last(scenario);
    printf("%s: %llu executions, %s", scenario->name, (unsigned long long)result.executions,
           result.is_wrong      ? "the last is wrong"
           : result.is_complete ? "which are all"
                                : "none is wrong");
    if (result.too_long)
        printf(", %llu were too long", (unsigned long long)result.too_long);
    printf("\n");
    return result.is_wrong;
}

static const mm_scenario *named_in(const mm_scenario *const *at, const char *name) {
    for (; *at; at++)
        if (strcmp((*at)->name, name) == 0)
            return *at;
    fprintf(stderr, "no scenario %s\n", name);
    exit(2);
}

static const mm_scenario *named(const char *name) {
    return named_in(mm_scenarios, name);
}

/* ---- outcomes ------------------------------------------------------------------------------------------ */

#define OUTCOMES 10000

static uint8_t has_come[OUTCOMES];

void mm_outcome(int number) {
    has_come[number] = 1;
}

static int list_outcomes(const mm_scenario *scenario) {
    mm_search_all((mm_bounds){-1, -1});
    found result = search(scenario, 1000000);
    if (result.is_wrong || !result.is_complete)
        printf("%s", result.is_wrong ? mm_wrong() : "too many executions");
    for (int i = 0; i < OUTCOMES && !result.is_wrong; i++)
        if (has_come[i])
            printf("%d ", i);
    printf("\n");
    return 0;
}

/* ---- planted faults ------------------------------------------------------------------------------------ */

static const char *part_name(enum mm_order part) {
    return part == MM_ACQUIRE ? "acquire" : part == MM_RELEASE ? "release" : "seq_cst";
}

/* First within narrow bounds, because few executions find most faults; then random ones. */
static found search_shortly(const mm_scenario *scenario, uint64_t most, uint64_t random) {
    static const mm_bounds steps[] = {{0, 0}, {0, 1}, {1, 1}, {0, 2}, {2, 1}, {1, 2}, {2, 2}};
    found all = {0, 0, 0, 0};
    for (size_t i = 0; i <= sizeof steps / sizeof *steps && !all.is_wrong; i++) {
        int is_last = i == sizeof steps / sizeof *steps;
        if (!is_last && (steps[i].preemptions > scenario->preemptions || steps[i].stale > scenario->stale))
            continue;
        if (is_last)
            mm_search_random((mm_bounds){-1, -1}, 1);
        else
            mm_search_all(steps[i]);
        found some = search(scenario, is_last ? random : most);
        all.executions += some.executions;
        all.too_long += some.too_long;
        all.is_wrong = some.is_wrong;
    }
    return all;
}

static uint8_t uses[SCENARIOS_MOST][MM_PLACES]; /* 1: this scenario comes to this place */

/* Runs the scenarios as they are. */
static int search_unplanted(uint64_t most, uint64_t random, char **names) {
    for (int i = 0; names[i]; i++) {
        for (int place = 0; place < mm_nplaces; place++)
            mm_places[place].passed = 0;
        if (i == SCENARIOS_MOST || report(named(names[i]), search_shortly(named(names[i]), most, random)))
            return 0;
        for (int place = 0; place < mm_nplaces; place++)
            uses[i][place] = mm_places[place].passed > 0;
    }
    return 1;
}

static int plant(int place, enum mm_order part, int if_not, uint64_t most, uint64_t random, char **names) {
    const char *finder = "-";
    uint64_t executions = 0;
    mm_take_away(place, part, if_not);
    for (int i = 0; names[i] && strcmp(finder, "-") == 0; i++) {
        if (!uses[i][place])
            continue;
        found result = search_shortly(named(names[i]), most, random);
        executions += result.executions;
        if (result.is_wrong)
            finder = names[i];
    }
    mm_take_away(-1, part, 0);
    int is_found = strcmp(finder, "-") != 0;
    printf("plant %#llx %s %s%s %s %llu %s\n",
           (unsigned long long)(mm_places[place].address - (uintptr_t)__executable_start), mm_places[place].kind,
           part_name(part), if_not ? "-if-not" : "", finder, (unsigned long long)executions,
           is_found ? mm_wrong() : "-");
    return is_found;
}

/* What is sequentially consistent must need that; whether it must also acquire is then no question. */
static void plant_at(int place, int order, int if_not, uint64_t most, uint64_t random, char **names) {
    if (order & MM_SC && plant(place, MM_SC, if_not, most, random, names))
        return;
    for (int part = MM_ACQUIRE; part <= MM_RELEASE; part++)
        if (order & part)
            plant(place, part, if_not, most, random, names);
}

static int plant_all(uint64_t most, uint64_t random, char **names) {
    if (!search_unplanted(most, random, names))
        return 1;
    int nplaces = mm_nplaces;
    for (int i = 0; i < nplaces; i++) {
        plant_at(i, mm_places[i].order, 0, most, random, names);
        plant_at(i, mm_places[i].order_if_not, 1, most, random, names);
    }
    return 0;
}

/* ---- the command ----------------------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr, "explore all|random|plants ...: see main.c. Scenarios:");
    for (const mm_scenario *const *at = mm_scenarios; *at; at++)
        fprintf(stderr, " %s", (*at)->name);
    fprintf(stderr, "\n");
    return 2;
}

static uint64_t number(const char *word) {
    return strtoull(word, NULL, 10);
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "all") == 0) {
        mm_search_all((mm_bounds){atoi(argv[3]), atoi(argv[4])});
        return report(named(argv[2]), search(named(argv[2]), number(argv[5])));
    }
    if (argc == 5 && strcmp(argv[1], "random") == 0) {
        mm_search_random((mm_bounds){-1, -1}, number(argv[3]));
        return report(named(argv[2]), search(named(argv[2]), number(argv[4])));
    }
    if (argc == 3 && strcmp(argv[1], "outcomes") == 0)
        return list_outcomes(named_in(mm_litmus, argv[2]));
    if (argc > 4 && strcmp(argv[1], "plants") == 0)
        return plant_all(number(argv[2]), number(argv[3]), argv + 4);
    return usage();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * choices.c - the choices of an execution: all lists one after the other, depth first, or random ones.
 */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>

#define CHOICES_MOST 100000
#define STAYS 3 /* of four random choices so many are the first */

static struct {
    uint16_t taken, of;
} list[CHOICES_MOST];
static int length, at, is_random, is_repeat;
static uint64_t state;
static mm_bounds bounds, left;

static uint64_t draw(uint64_t n) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (x ^ x >> 31) % n;
}

static void search(mm_bounds new_bounds, int random, uint64_t seed) {
    bounds = new_bounds;
    is_random = random;
    is_repeat = 0;
    state = seed;
    length = 0;
}

void mm_search_all(mm_bounds new_bounds) {
    search(new_bounds, 0, 0);
}

void mm_search_random(mm_bounds new_bounds, uint64_t seed) {
    search(new_bounds, 1, seed);
}

static int or_no_bound(int bound) {
    return bound < 0 ? CHOICES_MOST : bound;
}

void mm_choices_begin(void) {
    at = 0;
    if (is_random && !is_repeat)
        length = 0;
    left = (mm_bounds){or_no_bound(bounds.preemptions), or_no_bound(bounds.stale)};
}

void mm_choices_repeat(void) {
    is_repeat = 1;
}

int mm_choices_next(void) {
    if (is_random)
        return 1;
    length = at;
    while (length > 0 && list[length - 1].taken + 1 == list[length - 1].of)
        length--;
    if (length == 0)
        return 0;
    list[length - 1].taken++;
    return 1;
}

static int take(int n, int first_is_likely) {
    if (n < 2)
        return 0;
    if (at == CHOICES_MOST)
        mm_give_up();
    if (at == length) {
        int random = is_random && !(first_is_likely && draw(4) < STAYS) ? (int)draw((uint64_t)n) : 0;
        list[at].taken = (uint16_t)random;
        list[at].of = (uint16_t)n;
        length++;
    }
    if (list[at].of != n) {
        fprintf(stderr, "an execution is not a function of its choices: %d instead of %d\n", n, list[at].of);
        abort();
    }
    return list[at++].taken;
}

int mm_choose(int n) {
    return take(n, 0);
}

int mm_choose_dear(int *budget, int n) {
    int taken = *budget > 0 ? take(n, 1) : 0;
    *budget -= taken > 0;
    return taken;
}

int *mm_preemptions_left(void) {
    return &left.preemptions;
}

int *mm_stale_left(void) {
    return &left.stale;
}

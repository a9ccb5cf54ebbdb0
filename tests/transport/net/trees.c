/* SPDX-License-Identifier: Apache-2.0
 *
 * trees.c - the tree and the segments of a broadcast against a simulation of its links.
 *
 * A member sends one segment at a time, in order, and each to its children in order, as soon as it has it. The chain
 * and the binomial tree of the textbooks are built here.
 */
#include "transport/net/algorithms.h"

#include <stdio.h>
#include <stdlib.h>

#define MEMBERS 40
#define SEGMENTS 256

typedef struct shape {
    int32_t nchildren[MEMBERS], children[MEMBERS][32];
} shape;

static shape chain_of(int32_t n) {
    shape made = {0};
    for (int32_t i = 0; i + 1 < n; i++)
        made.children[i][made.nchildren[i]++] = i + 1;
    return made;
}

/* The parent of a member is its number without the lowest bit. */
static shape binomial_of(int32_t n) {
    shape made = {0};
    for (int32_t bit = 32; bit > 0; bit /= 2)
        for (int32_t i = bit; i < n; i += 2 * bit)
            made.children[i - bit][made.nchildren[i - bit]++] = i;
    return made;
}

static shape ours(int32_t n, double segments) {
    shape made = {0};
    for (int32_t i = 0; i < n; i++) {
        hc__tree tree = hc__tree_of(n, i, segments);
        made.nchildren[i] = tree.nchildren;
        for (int32_t c = 0; c < tree.nchildren; c++)
            made.children[i][c] = tree.children[c];
    }
    return made;
}

/* The steps until all members have all segments, if a segment takes one step on a link. */
static int simulate(const shape *of, int32_t n, int segments) {
    static int has[MEMBERS][SEGMENTS];
    int last = 0;
    for (int s = 0; s < segments; s++)
        has[0][s] = 0;
    for (int32_t i = 0; i < n; i++) /* parents have lower numbers */
        for (int s = 0, free = 0; s < segments; s++) {
            free = has[i][s] > free ? has[i][s] : free;
            last = has[i][s] > last ? has[i][s] : last;
            for (int32_t c = 0; c < of->nchildren[i]; c++)
                has[of->children[i][c]][s] = ++free;
        }
    return last;
}

static int least(int32_t n, int segments) {
    shape chain = chain_of(n), binomial = binomial_of(n);
    int a = simulate(&chain, n, segments), b = simulate(&binomial, n, segments);
    return a < b ? a : b;
}

static int fail(const char *what, int32_t n, double got, double expected) {
    fprintf(stderr, "%s of %d members: %g, but %g is possible\n", what, n, got, expected);
    return 1;
}

static double seconds(const hc__net_model *m, int32_t n, int64_t bytes, int64_t step) {
    int segments = bytes > step ? (int)((bytes + step - 1) / step) : 1;
    return least(n, segments) * (m->alpha + (double)bytes / segments * m->beta);
}

int main(void) {
    const hc__net_model models[] = {{2e-5, 1e-9, 0}, {2e-6, 4e-11, 0}, {3e-4, 8e-8, 0}};
    for (int32_t n = 2; n <= MEMBERS; n++)
        for (int segments = 1; segments <= 64; segments++) {
            shape made = ours(n, segments);
            int steps = simulate(&made, n, segments), best = least(n, segments);
            if (steps > best)
                return fail("the tree", n, steps, best);
        }
    for (int32_t n = 2; n <= MEMBERS; n++)
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            for (int64_t bytes = 1 << 10; bytes <= 4 << 20; bytes *= 4) {
                double best = seconds(&models[m], n, bytes, 512 << 10);
                for (int64_t step = 256 << 10; step >= 16 << 10; step /= 2)
                    if (seconds(&models[m], n, bytes, step) < best)
                        best = seconds(&models[m], n, bytes, step);
                int64_t step = hc__tree_segment(&models[m], n, bytes, 512 << 10);
                if (seconds(&models[m], n, bytes, step) > 1.001 * best)
                    return fail("a broadcast", n, seconds(&models[m], n, bytes, step), best);
            }
    puts("fine");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * radices.c - splits a number of members into stages.
 *
 * Stages of any radix replace the fold to a power of two: 4,608 members are 16 x 16 x 9 x 2, and no member does the
 * work of two. Rabenseifner and Traff ("More Efficient Reduction Algorithms for Non-Power-of-Two Number of Processors",
 * EuroPVM/MPI 2004) eliminate the fold by stages of 3 and 2. A number with a large prime factor keeps a small fold: a
 * member without a position gives each member of its group the part of its data that this member adds up anyhow.
 *
 * Where every so many members share a switch, the first stages split these: 18 nodes per leaf switch and 256 of these
 * are 6 x 3 x 4 x 4 x 4 x 4, so that the largest parts stay below their switch.
 */
#include "transport/net/radices.h"

#include <string.h>

static const int32_t largest_radices[] = {2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64};

/* The largest divisor of n from 2 to most; 1: there is none. */
static int32_t divisor_of(int32_t n, int32_t most) {
    for (int32_t d = most < n ? most : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* Appends stages whose product is n, the largest radix first. 0: a prime factor of n is larger than `most`. */
static int factor(hc__stages *stages, int32_t n, int32_t most) {
    while (n > 1) {
        int32_t radix = divisor_of(n, most);
        if (radix == 1)
            return 0;
        stages->radix[stages->depth++] = radix;
        n /= radix;
    }
    return 1;
}

/* Stages of n members with a radix of `most` at most. The members without a position are as few per group as possible:
 * none, or one beside as many others as possible. */
static int split(hc__stages *stages, int32_t n, int32_t most) {
    *stages = (hc__stages){0};
    if (factor(stages, n, most))
        return 1;
    for (int32_t first = most < n ? most : n - 1; first > 1; first--)
        for (int32_t groups = n / first; groups * (first + 1) >= n; groups--) {
            *stages = (hc__stages){.depth = 1, .extra = n - first * groups, .radix = {first}};
            if (factor(stages, groups, most))
                return 1;
        }
    return 0;
}

/* The same, where the first stages split the members of a group; 0: the sizes do not allow it. */
static int split_groups(hc__stages *stages, int32_t n, int32_t group, int32_t most) {
    *stages = (hc__stages){0};
    return group > 1 && group < n && n % group == 0 && factor(stages, group, most) && factor(stages, n / group, most);
}

static int32_t count_near(const hc__stages *stages, int32_t group) {
    int32_t near = 0, members = 1;
    while (group > 1 && near < stages->depth && stages->extra == 0 && group % (members * stages->radix[near]) == 0)
        members *= stages->radix[near++];
    return near;
}

static int is_known(const hc__splits *splits, const hc__stages *stages) {
    for (int32_t i = 0; i < splits->count; i++)
        if (!memcmp(&splits->stages[i], stages, sizeof *stages))
            return 1;
    return 0;
}

static void add(hc__splits *splits, hc__stages stages, int32_t group) {
    stages.near = count_near(&stages, group);
    if (!is_known(splits, &stages))
        splits->stages[splits->count++] = stages;
}

void hc__splits_of(int32_t n, int32_t group, hc__splits *splits) {
    *splits = (hc__splits){.n = n, .count = 1, .stages = {{.depth = 1, .radix = {n}}}};
    for (size_t i = 0; i < sizeof largest_radices / sizeof *largest_radices; i++) {
        hc__stages stages;
        int32_t most = largest_radices[i];
        if (most < n && split(&stages, n, most))
            add(splits, stages, group);
        if (most < n && split_groups(&stages, n, group, most))
            add(splits, stages, group);
    }
}

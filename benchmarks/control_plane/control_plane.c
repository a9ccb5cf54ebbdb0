/* SPDX-License-Identifier: Apache-2.0
 *
 * control_plane.c - what does agreement on ResNet-50's gradients cost, from one node to 4,608?
 *
 *     control_plane NODES RANKS_PER_NODE FANOUT STEPS
 *     control_plane gradients
 *
 * One line of JSON per step: the first announcement, then STEPS cached steps of each way of arriving. Or one line with
 * the gradients' names and numbers of dimensions.
 */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint32_t below(uint32_t n) { /* splitmix64 */
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z >> 32) * n) >> 32);
}

static void shuffle(int *v, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)below((uint32_t)i + 1), t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

static void print(const fleet *f, const char *arrival, int step, fleet_cost c) {
    printf("{\"nodes\": %d, \"ranks\": %d, \"fanout\": %d, \"arrival\": \"%s\", \"step\": %d, \"messages\": "
           "%llu, \"bytes\": %llu, "
           "\"chain\": %u, \"messages_max\": %u, \"bytes_max\": %llu, \"cpu_us_mean\": %.2f, \"cpu_us_max\": "
           "%.2f, "
           "\"memory_mean\": %llu, \"memory_max\": %llu, \"batches\": %u, \"entries\": %u}\n",
           f->nodes, f->ranks, f->fanout, arrival, step, (unsigned long long)c.messages, (unsigned long long)c.bytes,
           c.chain, c.messages_max, (unsigned long long)c.bytes_max, c.cpu_mean, c.cpu_max,
           (unsigned long long)c.memory_mean, (unsigned long long)c.memory_max, c.batches, c.entries);
    fflush(stdout);
}

/* All ranks submit the gradients in the same order, last layer first, and wait. */
static fleet_cost in_order(fleet *f, const int *order) {
    fleet_begin(f);
    for (int r = 0; r < f->ranks; r++)
        fleet_raise(f, r, order, 0, GRADIENTS);
    return fleet_finish(f);
}

/* Every rank in an order of its own, in four parts; messages travel between the parts. */
static fleet_cost differing(fleet *f, int *orders) {
    fleet_begin(f);
    for (int r = 0; r < f->ranks; r++)
        shuffle(orders + (size_t)r * GRADIENTS, GRADIENTS);
    for (int part = 0; part < 4; part++) {
        for (int r = 0; r < f->ranks; r++)
            fleet_raise(f, r, orders + (size_t)r * GRADIENTS, part * GRADIENTS / 4, (part + 1) * GRADIENTS / 4);
        fleet_drain(f);
    }
    return fleet_finish(f);
}

/* One rank comes when all others have long been waiting; the chain is counted from its arrival. */
static fleet_cost late(fleet *f, const int *order) {
    int last = (int)below((uint32_t)f->ranks);
    fleet_begin(f);
    for (int r = 0; r < f->ranks; r++)
        if (r != last)
            fleet_raise(f, r, order, 0, GRADIENTS);
    fleet_drain(f);
    fleet_chain_restarts(f);
    fleet_raise(f, last, order, 0, GRADIENTS);
    return fleet_finish(f);
}

static int print_gradients(void) {
    gradient g[GRADIENTS];
    resnet50_gradients(g);
    for (int i = 0; i < GRADIENTS; i++)
        printf("%s[\"%s\", %d]", i ? ", " : "[", g[i].name, g[i].ndim);
    printf("]\n");
    return 0;
}

int main(int argc, char **argv) {
    static fleet f;
    if (argc == 2 && !strcmp(argv[1], "gradients"))
        return print_gradients();
    if (argc != 5) {
        fprintf(stderr, "control_plane NODES RANKS_PER_NODE FANOUT STEPS\n");
        return 2;
    }
    int steps = atoi(argv[4]), order[GRADIENTS];
    fleet_open(&f, atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
    int *orders = malloc(sizeof *orders * (size_t)f.ranks * GRADIENTS);
    if (!orders)
        return 1;
    for (int i = 0; i < GRADIENTS; i++)
        order[i] = GRADIENTS - 1 - i;
    for (int i = 0; i < f.ranks * GRADIENTS; i++)
        orders[i] = i % GRADIENTS;
    print(&f, "first", 0, in_order(&f, order));
    for (int s = 0; s < steps; s++)
        print(&f, "in order", s, in_order(&f, order));
    for (int s = 0; s < steps; s++)
        print(&f, "differing", s, differing(&f, orders));
    for (int s = 0; s < steps; s++)
        print(&f, "one late", s, late(&f, order));
    free(orders);
    fleet_close(&f);
    return 0;
}

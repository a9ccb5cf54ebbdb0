/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h - the one source of chance of a simulated run: equal seeds give equal runs on every machine.
 */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include <stdint.h>

typedef struct sim_random {
    uint64_t state;
} sim_random;

/* splitmix64 (Steele, Lea, Flood 2014): one word of state, so a run is named by its seed alone. */
static inline uint64_t sim_next(sim_random *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number in [0, n); n > 0. */
static inline uint32_t sim_below(sim_random *r, uint32_t n) {
    return (uint32_t)(((sim_next(r) >> 32) * n) >> 32);
}

/* A number in [low, high]. */
static inline int sim_between(sim_random *r, int low, int high) {
    return low + (int)sim_below(r, (uint32_t)(high - low + 1));
}

/* True in `percent` of 100 cases. */
static inline int sim_chance(sim_random *r, uint32_t percent) {
    return sim_below(r, 100) < percent;
}

static inline void sim_shuffle(sim_random *r, int *v, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)sim_below(r, (uint32_t)i + 1), t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

#endif

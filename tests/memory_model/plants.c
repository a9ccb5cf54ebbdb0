/* SPDX-License-Identifier: Apache-2.0
 *
 * plants.c - the places of atomic operations in the program, and an order that is taken away at one of them.
 */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>

mm_place mm_places[MM_PLACES];
int mm_nplaces;
static int taken_at = -1, taken_if_not;
static enum mm_order taken_part;

/* Nothing is sequentially consistent that does not acquire or release. */
static int without(int order, enum mm_order part) {
    return order & ~(int)part & ~MM_SC;
}

static int from_c11(int order, int loads, int stores) {
    int sc = order == __ATOMIC_SEQ_CST ? MM_SC : 0;
    int acquires = sc || order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_CONSUME;
    int releases = sc || order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL;
    return sc | (acquires && loads ? MM_ACQUIRE : 0) | (releases && stores ? MM_RELEASE : 0);
}

static int find(uintptr_t address) {
    int i = 0;
    while (i < mm_nplaces && mm_places[i].address != address)
        i++;
    if (i == MM_PLACES) {
        fprintf(stderr, "more than %d atomic operations\n", MM_PLACES);
        abort();
    }
    return i;
}

int mm_order_at(const void *address, const char *kind, int c11_order, int c11_order_if_not, int *order_if_not) {
    int i = find((uintptr_t)address);
    int loads = *kind != 's', stores = *kind != 'l';
    mm_place *place = &mm_places[i];
    if (i == mm_nplaces) {
        mm_nplaces++;
        *place = (mm_place){.address = (uintptr_t)address, .kind = kind};
    }
    place->order = from_c11(c11_order, loads, stores);
    place->order_if_not = *kind == 'c' ? from_c11(c11_order_if_not, 1, 0) : 0;
    place->passed++;
    int order = i == taken_at && !taken_if_not ? without(place->order, taken_part) : place->order;
    if (order_if_not)
        *order_if_not = i == taken_at && taken_if_not ? without(place->order_if_not, taken_part) : place->order_if_not;
    return order;
}

void mm_take_away(int place, enum mm_order part, int if_not) {
    taken_at = place;
    taken_part = part;
    taken_if_not = if_not;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * list.c - the Worlds of this process. The memory of an ended World stays, so that a call with it is an error.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/list.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for adding a World; the list only grows */
static _Atomic(hpccoll_world *) newest;

static void free_lists(hpccoll_world *world) {
    free(world->members);
    free(world->turns);
    free(world->grid);
    world->grid = NULL;
    world->members = NULL;
    world->turns = NULL;
}

hpccoll_world *hc__world_new(hc__base *base, uint32_t number, const int32_t *members, int32_t size, int32_t rank) {
    hpccoll_world *world = calloc(1, sizeof *world);
    if (world) {
        world->members = malloc((size_t)size * sizeof *world->members);
        world->turns = malloc(HC__MAKERS * sizeof *world->turns);
    }
    if (!world || !world->members || !world->turns) {
        if (world)
            free_lists(world);
        free(world);
        return NULL;
    }
    memcpy(world->members, members, (size_t)size * sizeof *members);
    for (int maker = 0; maker < HC__MAKERS; maker++)
        pthread_mutex_init(&world->turns[maker], NULL);
    world->base = base;
    world->number = number;
    world->rank = rank;
    world->size = size;
    world->state = HC__WORLD_ALIVE;
    pthread_mutex_lock(&lock);
    world->next = newest;
    newest = world;
    pthread_mutex_unlock(&lock);
    return world;
}

hpccoll_world *hc__world_newest(void) {
    return newest;
}

void hc__world_ended(hpccoll_world *world, const char *by) {
    world->state = 0;
    world->ended_by = by;
    world->base = NULL;
    free_lists(world);
}

void hc__worlds_ended(const hc__base *base, const char *by) {
    for (hpccoll_world *world = newest; world; world = world->next)
        if (world->state == HC__WORLD_ALIVE && world->base == base)
            hc__world_ended(world, by);
}

int hc__world_check(const hpccoll_world *world) {
    if (!world)
        return hc__error(HC_INVALID, "the World is NULL: it was freed, or this rank is not in it");
    if (world->state != HC__WORLD_ALIVE)
        return hc__error(HC_SHUT_DOWN, "the World is none any more: %s", world->ended_by);
    if (world->base->python && world->base->python->closed)
        return hc__error(HC_SHUT_DOWN, "the World was shut down by Python");
    return HC_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * worlds.c - creates Worlds from a communicator, from what a launcher has started, from this process alone, or from a
 * World of Python; and ends them.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/elastic.h"
#include "api/launcher.h"
#include "api/list.h"
#include "api/parts.h"
#include "api/plans.h"
#include "api/python_world.h"
#include "api/requests.h"
#include "api/settings.h"
#include "api/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOP_AT_LEAST 1000000000ull /* ns; time for the end of the log, after the wait for the others */

static const char freed[] = "it was freed";

static void free_base(hc__base *base) {
    hc__parts_free(base);
    pthread_mutex_destroy(&base->lock);
    pthread_mutex_destroy(&base->own.lock);
    free((void *)(uintptr_t)base->processes.hosts);
    free(base->own.node_of);
    free(base->own.places);
    free(base);
}

/* A base without ranks: `job` has no parts yet. */
static hc__base *empty_base(void) {
    hc__base *base = calloc(1, sizeof *base);
    if (!base)
        return NULL;
    base->job = &base->own;
    hc_job_init(base->job);
    base->segment.fd = -1;
    pthread_mutex_init(&base->lock, NULL);
    return base;
}

static hc__base *new_base(int32_t rank, int32_t size) {
    hc__base *base = empty_base();
    if (!base)
        return NULL;
    base->calls = hc__own_calls;
    base->job->rank = rank;
    base->job->size = size;
    base->job->node_of = calloc((size_t)size, sizeof *base->job->node_of);
    if (!base->job->node_of) {
        free_base(base);
        return NULL;
    }
    return base;
}

static hpccoll_world *world_of_all(hc__base *base) {
    int32_t *members = malloc((size_t)base->job->size * sizeof *members);
    hpccoll_world *world = NULL;
    for (int32_t r = 0; members && r < base->job->size; r++)
        members[r] = r;
    if (members)
        world = hc__world_new(base, 0, members, base->job->size, base->job->rank);
    free(members);
    return world;
}

/* `comm`: of `mpi`; or both NULL. `wrong`: OK, or the status of the settings (error set). */
static int make(hc_rendezvous *r, const hc_mpi_family *mpi, const void *comm, const hc__settings *settings, int wrong,
                hpccoll_world **world) {
    hc__base *base = new_base(r->rank, r->size);
    if (!base)
        return hc__error(HC_NO_MEMORY, NULL);
    base->mpi = mpi;
    base->settings = *settings;
    base->elastic.generation = r->generation;
    int status = hc__start(base, r, comm, wrong);
    if (status >= 0 && !(*world = world_of_all(base)))
        status = hc__error(HC_NO_MEMORY, NULL);
    if (status < 0)
        free_base(base);
    return status;
}

static hc_rendezvous_terms terms_of(const hc__settings *settings) {
    return (hc_rendezvous_terms){.size = 1, .timeout = settings->start_timeout, .version = HPCCOLL_VERSION};
}

/* ---- forks and the end of MPI ------------------------------------------------------------------------------- */

static void mark_forked(void) {
    hc_coordinator_forked();
    for (hpccoll_world *world = hc__world_newest(); world; world = world->next)
        if (world->state == HC__WORLD_ALIVE && !world->base->python && world->base->job->loop && world->number == 0) {
            hc__devices_forked(world->base);
            hc_loop_forked(world->base->job->loop);
        }
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, mark_forked);
}

static int end(hpccoll_world *world, const char *by);

/* The World of a communicator whose random word is the first one; NULL: none is left. */
static hpccoll_world *first_over_mpi(void) {
    hpccoll_world *first = NULL;
    for (hpccoll_world *world = hc__world_newest(); world; world = world->next)
        if (world->state == HC__WORLD_ALIVE && world->base->mpi && world->number == 0 &&
            (!first || strcmp(world->base->job->nonce, first->base->job->nonce) < 0))
            first = world;
    return first;
}

/* Ends all Worlds of communicators, with their process sets, in the order of the random words that the ranks of each
 * share. The order in which threads have made them may be another one on each rank, and ranks that ended two Worlds in
 * different orders would wait for each other. */
static void end_with_mpi(void) {
    hpccoll_world *world;
    while ((world = first_over_mpi()))
        end(world, "MPI_Finalize has ended it");
}

/* ---- the public functions ------------------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;

int hpccoll_world_alone(const char *options, hpccoll_world **world) {
    hc__settings settings;
    hc_rendezvous *r = NULL;
    char why[HC_RENDEZVOUS_WHY];
    if (!world)
        return hc__error(HC_INVALID, "world is NULL");
    *world = NULL;
    int status = hc__settings_read(&settings, options);
    if (status < 0)
        return status;
    pthread_once(&once, watch_forks);
    const hc_rendezvous_terms terms = terms_of(&settings);
    status = hc_rendezvous_alone(&terms, &r, why);
    status = status < 0 ? hc__error(status, NULL) : make(r, NULL, NULL, &settings, HC_OK, world);
    hc_rendezvous_free(r);
    return status;
}

/* One start at a time: those of several threads would take each other's values. */
static int from_launcher(const hc__settings *settings, int wrong, hpccoll_world **world) {
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    const hc_rendezvous_terms terms = terms_of(settings);
    hc_rendezvous *r = NULL;
    pthread_mutex_lock(&turn);
    int status = hc__launcher_rendezvous(&terms, &r);
    if (status >= 0)
        status = make(r, NULL, NULL, settings, wrong, world);
    hc_rendezvous_free(r);
    pthread_mutex_unlock(&turn);
    return status;
}

int hpccoll_world_from_launcher(const char *options, hpccoll_world **world) {
    hc__settings settings;
    if (!world)
        return hc__error(HC_INVALID, "world is NULL");
    *world = NULL;
    int wrong = hc__settings_read(&settings, options);
    pthread_once(&once, watch_forks);
    return from_launcher(&settings, wrong, world);
}

static const hc_mpi_family *find_mpi(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const hc_mpi_family *found;
    char why[256] = "";
    pthread_mutex_lock(&lock);
    if (!found && !hc_mpi_address())
        hc__error(HC_UNSUPPORTED, "this program has no MPI: link it with one (mpicc), or use hpccoll_world_alone()");
    else if (!found && !(found = hc_mpi_load(NULL, why)))
        hc__error(HC_UNSUPPORTED, "the MPI library of this program cannot be used: %s", why);
    pthread_mutex_unlock(&lock);
    return found;
}

static int refuses(const hc_mpi_family *mpi, const void *comm) {
    const char *why = mpi->comm_refuse(comm);
    if (why)
        hc__error(HC_INVALID, "the World was not made: %s", why);
    return why != NULL;
}

static int from_comm(const hc_mpi_family *mpi, const void *comm, const char *options, hpccoll_world **world) {
    hc__settings settings;
    hc_net *start = NULL;
    hc_rendezvous *r = NULL;
    char why[HC_RENDEZVOUS_WHY];
    if (refuses(mpi, comm))
        return HC_INVALID;
    pthread_once(&once, watch_forks);
    if (mpi->at_finalize(end_with_mpi) < 0)
        return hc__error(HC_TRANSPORT, "the World was not made: MPI_Comm_set_attr failed");
    int wrong = hc__settings_read(&settings, options), status = mpi->net_borrow(comm, &start);
    if (status < 0)
        return hc__error(status, "the World was not made: MPI failed");
    const hc_rendezvous_terms terms = terms_of(&settings);
    status = hc_rendezvous_over_net(start, &terms, &r, why);
    status = status < 0 ? hc__error(status, NULL) : make(r, mpi, comm, &settings, wrong, world);
    hc_rendezvous_free(r);
    start->ops->free(start);
    return status;
}

int hpccoll_world_from_comm(const void *comm, size_t comm_bytes, const char *options, hpccoll_world **world) {
    if (!world || !comm)
        return hc__error(HC_INVALID, "%s is NULL", world ? "comm" : "world");
    *world = NULL;
    const hc_mpi_family *mpi = find_mpi();
    if (!mpi)
        return HC_UNSUPPORTED;
    if ((int64_t)comm_bytes != mpi->facts()->value)
        return hc__error(HC_INVALID,
                         "an MPI_Comm of this program has %zu bytes, one of its MPI library (%s) %d: it was "
                         "compiled for another MPI",
                         comm_bytes, mpi->name, (int)mpi->facts()->value);
    return from_comm(mpi, comm, options, world);
}

int hpccoll_world_from_fortran(int comm, const char *options, hpccoll_world **world) {
    uint64_t handle[HC_MPI_COMM_BYTES / 8] = {0};
    if (!world)
        return hc__error(HC_INVALID, "world is NULL");
    *world = NULL;
    const hc_mpi_family *mpi = find_mpi();
    if (!mpi)
        return HC_UNSUPPORTED;
    if (refuses(mpi, NULL))
        return HC_INVALID;
    if (mpi->comm_of_fortran(comm, hc_mpi_function, handle) < 0)
        return hc__error(HC_UNSUPPORTED, "the MPI library has no MPI_Comm_f2c");
    return hpccoll_world_from_comm(handle, (size_t)mpi->facts()->value, options, world);
}

/* Python calls it after its loop has ended: frees the plans that C has made in the loop. */
static void end_with_python(void *of) {
    hc__base *base = of;
    hc__plans_free(base, NULL);
    base->job = &base->own;
}

int hpccoll_world_from_python(void *capsule_pointer, hpccoll_world **world) {
    hc_python_world *python = capsule_pointer;
    if (!world || !python)
        return hc__error(HC_INVALID, "%s is NULL", world ? "the pointer of the capsule" : "world");
    *world = NULL;
    if (python->calls.version != HC_LOOP_CALLS_VERSION)
        return hc__error(HC_INVALID,
                         "the Python part was built for another version of libhpccoll: install both from one "
                         "hpccoll");
    if (python->closed)
        return hc__error(HC_SHUT_DOWN, NULL);
    hc__base *base = empty_base();
    if (!base)
        return hc__error(HC_NO_MEMORY, NULL);
    base->job = python->job;
    base->calls = python->calls;
    base->python = python;
    base->settings.stop_timeout = python->stop_timeout;
    base->python_job = (hc_job_user){.ended = end_with_python, .of = base};
    hc_job_add_user(base->job, &base->python_job);
    hc__devices_of_python(base);
    *world = hc__world_new(base, python->set, python->members, python->size, python->rank);
    return *world ? HC_OK : hc__error(HC_NO_MEMORY, NULL);
}

/* ---- ends --------------------------------------------------------------------------------------------------- */

/* Waits until all ranks free the World, or until stop_timeout. */
static void await_others(hpccoll_world *world) {
    const hpccoll_args args = {
        .name = "hpccoll.shutdown", .prescale = 1, .postscale = 1, .compression = HPCCOLL_NO_COMPRESSION, .row = 1};
    hc_handle *h;
    if (hc__call_begin(&(hc__call){.operation = HC_BARRIER, .args = &args, .is_last = 1}, world, 1, &h) < 0)
        return;
    if (!hc__await(world, h, world->base->settings.stop_timeout))
        fprintf(stderr,
                "hpccoll: rank %d: hpccoll_world_free: other ranks have not called it within %g s "
                "(HPCCOLL_STOP_TIMEOUT): this rank ends without them\n",
                (int)world->rank, (double)world->base->settings.stop_timeout / 1e9);
    hc_handle_release(h);
}

static int stop(hpccoll_world *world) {
    hc_handle *h = hc_handle_new(HC_EV_STOP, world->number, 0, 0, NULL, 0, 0);
    if (!h)
        return 0;
    world->base->calls.submit(world->base->job->loop, h, 1);
    int done = hc__await(world, h, world->base->settings.stop_timeout + STOP_AT_LEAST);
    hc_handle_release(h);
    return done;
}

/* Ends this rank's part of a process set, and frees its number. */
static void end_set(hpccoll_world *world) {
    hc__base *base = world->base;
    if (stop(world) && base->calls.set_remove(base->job, world->number) >= 0) {
        hc_job_give_set_number_back(base->job, (int)world->number);
        hc__plans_free(base, world);
    }
    hc__world_ended(world, freed);
}

/* Ends the handle of the World, and those of all that was made of it, which the program may still free. */
static void end_handles(hpccoll_world *world, const char *by) {
    const hc__base *base = world->base;
    hc__world_ended(world, by);
    hc__worlds_ended(base, by == freed ? "the World that it was made of was freed" : by);
}

/* OK, or the status of a World that was broken before it has ended (error set). */
static int end(hpccoll_world *world, const char *by) {
    hc__base *base = world->base;
    int broken = HC_OK;
    if (base->python && world->number == base->python->set) { /* Python ends the loop */
        end_handles(world, by);
        free_base(base);
        return HC_OK;
    }
    if (!base->job->loop) { /* Python has ended it, and all its process sets */
        hc__world_ended(world, by);
        return HC_OK;
    }
    await_others(world);
    if (world->number) {
        end_set(world);
        return HC_OK;
    }
    stop(world);
    if ((broken = hc_loop_broken(base->job->loop)) < 0)
        hc__error(broken, "%s", hc_loop_broken_text(base->job->loop));
    hc__report_lost(base);
    end_handles(world, by);
    free_base(base);
    return broken;
}

int hpccoll_world_free(hpccoll_world **world) {
    if (!world)
        return hc__error(HC_INVALID, "the address of the World is NULL");
    if (!*world)
        return HC_OK;
    hpccoll_world *own = *world;
    if (own->state != HC__WORLD_ALIVE && own->ended_by == freed)
        return hc__world_check(own);
    *world = NULL;
    if (own->state != HC__WORLD_ALIVE) {
        own->ended_by = freed;
        return HC_OK;
    }
    return end(own, freed);
}

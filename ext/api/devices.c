/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c - see devices.h.
 *
 * The driver is asked about addresses only if this process has opened it before the World was made, or if a knob asks
 * for a device: other programs pay nothing, and their processes get no driver.
 */
#include "api/codes.h"
#include "api/devices.h"
#include "api/nets.h"

#include "core/fnv.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the start and the end of a World --------------------------------------------------------------------------- */

static char kernels[PATH_MAX + 32];

/* Finds the folder of the kernels' texts: beside lib in an installed package and in the source tree, else in share. */
static void find_kernels(void) {
    static const char *const places[] = {"/../share/hpccoll", "/../_kernels", NULL};
    static const char here;
    char library[PATH_MAX], file[PATH_MAX + 64];
    Dl_info self;
    if (!dladdr(&here, &self) || !realpath(self.dli_fname, library))
        return;
    *strrchr(library, '/') = 0;
    for (const char *const *place = places; *place; place++) {
        snprintf(kernels, sizeof kernels, "%s%s", library, *place);
        snprintf(file, sizeof file, "%s/pack.ptx", kernels);
        if (access(file, R_OK) == 0)
            return;
    }
}

/* Where this library lies does not change, and a program may make thousands of Worlds. */
static const char *kernels_folder(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_kernels);
    return kernels;
}

static int make_accelerator(hc__base *base) {
    static const char why[] = "a program without Python reads no proof; HPCCOLL_GPU_AWARE_MPI=yes says that it can";
    const hc__settings *s = &base->settings;
    const hc_device_data_config config = {
        .number = HC_DEVICE_CURRENT,
        .files = {.driver = s->cuda_library, .kernels = kernels_folder()},
        .nccl_library = s->nccl_library,
        .mode = hc_device_mode_named(s->device_mode),
        .gpu_aware = {.mode = hc_gpu_aware_named(hc__net_is_mpi(base) ? s->gpu_aware_mpi : "no"), .why = why},
        .small = (int64_t)s->device_small,
        .shares_device = hc__settings_variable("NCCL_MULTI_RANK_GPU_ENABLE") || hc__settings_variable("NCCL_HOSTID"),
        .patience = s->engine.stall_limit,
    };
    int status = hc_accelerator_new(&config, base->job->rank, strcmp(s->device, "none") == 0, &base->devices.c);
    return status < 0 ? hc__error(status, NULL) : HC_OK;
}

/* What a set's data planes for device memory are made by (world/plane_maker.h). */
static int make_plane(void *of, const hc_plane_parts *parts, hc_data **data, char *text) {
    int status = hc_accelerator_plane(of, parts, data);
    if (status < 0)
        snprintf(text, HC_PLANE_TEXT, "no data plane for devices");
    return status;
}

static void planes_begin(void *of) {
    (void)of; /* the base lives longer than the loop */
}

static void planes_end(void *of, uint32_t set) {
    hc_accelerator_forget(of, set);
}

int hc__devices_find(hc__base *base) {
    hc__devices *d = &base->devices;
    const hc__settings *s = &base->settings;
    int names_device = strcmp(s->device, "auto") != 0, off = strcmp(s->device, "none") == 0;
    int is_asked = *s->cuda_library || names_device, status = make_accelerator(base);
    if (status < 0)
        return status;
    d->source = (hc_plane_source){make_plane, planes_begin, planes_end, d->c};
    base->job->devices = &d->source;
    if (off || (!is_asked && !hc_driver_in_process(NULL)))
        return HC_OK;
    d->on = hc_driver_open(&d->driver, s->cuda_library) == HC_OK;
    return d->on || !is_asked
               ? HC_OK
               : hc__error(HC_UNSUPPORTED, "%.900s (%.900s)", d->driver.library.text, d->driver.library.remedy);
}

void hc__devices_of_python(hc__base *base) {
    const char *named = hc__settings_variable("HPCCOLL_CUDA_LIBRARY");
    base->devices.on = hc_driver_in_process(named) && hc_driver_open(&base->devices.driver, named) == HC_OK;
}

int hc__devices_open(hc__base *base, int32_t place, char why[HC_WHY]) {
    hc__devices *d = &base->devices;
    const char *named = base->settings.device;
    char text[HC_DEVICE_WHY];
    if (!d->on || strcmp(named, "auto") == 0)
        return HC_OK;
    int number = strcmp(named, "local") == 0 ? place % (d->driver.devices ? d->driver.devices : 1) : atoi(named);
    d->c->config.number = number;
    int status = hc_accelerator_open(d->c, number, NULL, text);
    return status < 0 ? hc__refuse(why, status, "%s", text) : HC_OK;
}

void hc__devices_describe(const hc__base *base, char *text, size_t room) {
    const hc__devices *d = &base->devices;
    const hc_device *device = d->c->device;
    text[0] = 0;
    if (device)
        snprintf(text, room, "; device memory of GPU %d (%s)", device->number, device->pci);
    else if (d->on)
        snprintf(text, room, "; device memory of %d GPU%s (CUDA %d.%d, %.400s)", d->driver.devices,
                 d->driver.devices == 1 ? "" : "s", d->driver.version / 1000, d->driver.version % 1000 / 10,
                 d->driver.library.path);
    else if (d->driver.library.text[0])
        snprintf(text, room, "; no device memory: %.400s", d->driver.library.text);
}

void hc__devices_close(hc__base *base) {
    hc_accelerator_free(base->devices.c);
    base->devices.c = NULL;
    base->devices.on = 0;
}

void hc__devices_forked(hc__base *base) {
    base->devices.on = 0;
    if (base->devices.c)
        base->devices.c->device = NULL;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

int hc__devices_place_one(const hpccoll_world *world, const void *data, const char *name, int *memory) {
    const hc__devices *d = &world->base->devices;
    char why[HC_DEVICE_WHY];
    int number = hc_driver_memory(&d->driver, data);
    *memory = number < 0 ? HC_MEMORY_HOST : HC_MEMORY_CUDA;
    if (number < 0)
        return HC_OK;
    if (!d->c)
        return hc__error(HC_UNSUPPORTED,
                         "%s lies in device memory: in a World of Python's, Python's functions take such arrays; "
                         "nothing was sent",
                         name);
    int status = hc_accelerator_check(d->c, number, data, name, why);
    return status < 0 ? hc__error(status, "%.1800s; nothing was sent", why) : HC_OK;
}

static int place_operand(const hc__call *call, const hpccoll_world *world, hc_operand *o, const char *argument, int i) {
    char name[64];
    snprintf(name, sizeof name, "%s: %s", hc_operation_name(call->operation), argument);
    if (call->is_group)
        snprintf(name, sizeof name, "%s: %s of array %d", hc_operation_name(call->operation), argument, i);
    return hc__devices_place_one(world, o->data, name, &o->memory);
}

/* An address that the call does not use may be anything: then the other array of the pair says where it lies. Where
 * neither has elements, each address that is not NULL says it. */
int hc__devices_place(const hc__call *call, const hpccoll_world *world, hc__read *read) {
    const hc_arguments *a = &read->arguments;
    char why[HC_WHY];
    int gives = hc_arguments_gives(a, &read->place), gets = hc_arguments_gets(a, &read->place), status = HC_OK;
    for (int i = 0; i < call->n && status >= 0; i++) {
        hc_operand *in = &read->operands[2 * i], *out = in + 1;
        int is_countable = in->count >= 0 && out->count >= 0; /* anything else is refused later */
        int64_t given = gives ? in->bytes : 0;
        int64_t result = is_countable ? hc_arguments_result_bytes(a, &read->place, (uint32_t)i) : 0;
        int reads = gives && in->data && (given || !result), writes = gets && out->data && (result || !given);
        if (reads)
            status = place_operand(call, world, in, "in", i);
        if (status >= 0 && writes && !(reads && in->data == out->data))
            status = place_operand(call, world, out, "out", i);
        else
            out->memory = in->memory;
        if (!reads)
            in->memory = out->memory;
    }
    if (status < 0)
        return status;
    status = hc_arguments_one_memory(a, &read->place, why);
    return status < 0 ? hc__error(status, "%s: %s; nothing was sent", hc_operation_name(call->operation), why) : HC_OK;
}

/* ---- requests on a device ---------------------------------------------------------------------------------------- */

static int failed(const hc_device *d, int status, const char *what) {
    return hc__error(HC_TRANSPORT, "GPU %d (%s): %s: %s (%d)", d->number, d->pci, what,
                     hc_driver_text(&d->driver, status), status);
}

int hc__devices_order(const hpccoll_world *world, hc_handle *h) {
    hc_device *d = world->base->devices.c->device;
    int status = hc_device_event_take(d, &h->finished);
    return status ? failed(d, status, "making an event") : HC_OK;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define POLLS 2000000u /* ns of polling before the first sleep */

int hc__devices_await(const hpccoll_world *world, hc_handle *h, uint64_t ns) {
    const hc__base *base = world->base;
    if (!base || !base->job->loop)
        return hc_handle_done(h);
    uint64_t begun = now(), polled = 0;
    if (!base->calls.wait(base->job->loop, &h, 1, ns))
        return 0;
    const hc_device *d = base->devices.c->device;
    while (h->status >= 0 && hc_device_event_query(d, h->finished) == HC_DRIVER_NOT_READY) {
        uint64_t time = now();
        polled = polled ? polled : time;
        if (time - begun >= ns)
            return 0;
        base->calls.progress(base->job->loop); /* NCCL may wait for a lost rank */
        if (time - polled < POLLS)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return 1;
}

/* Says on rank 0 how arrays in device memory are moved, and again after a change. */
static void say_facts(hc__base *base, uint32_t set) {
    hc__devices *d = &base->devices;
    const char *facts = hc_accelerator_facts(d->c, set);
    if (base->job->rank != 0 || !base->settings.verbose || !*facts)
        return;
    uint64_t hash = hc_fnv(facts, strlen(facts));
    int at = 0, most = sizeof d->said / sizeof *d->said;
    pthread_mutex_lock(&base->lock);
    while (at < most && d->said[at] && d->said[at] != hash)
        at++;
    int is_new = at < most && !d->said[at];
    if (is_new)
        d->said[at] = hash;
    pthread_mutex_unlock(&base->lock);
    if (is_new)
        fprintf(stderr, "hpccoll (C): arrays in device memory: %s\n", facts);
}

int hc__devices_end(const hpccoll_world *world, hc_handle *h, int status) {
    hc__base *base = world->base;
    if (!base || !base->devices.c || !base->devices.c->device)
        return status; /* the device was closed with the World */
    hc_device *d = base->devices.c->device;
    int ran = status < 0 ? 0 : hc_device_event_query(d, h->finished);
    if (status >= 0 && hc_loop_broken(base->job->loop) < 0) /* what was given up ends, too, without a result */
        status = hc__error(HC_BROKEN, "%s", hc_loop_broken_text(base->job->loop));
    else if (ran)
        status = failed(d, ran, "an operation's work");
    for (uint32_t i = 0; i < h->request.ntensors; i++)
        if (h->pieces[i].out_owned)
            hc_device_result_free(d, h->pieces[i].out, NULL);
    hc_device_event_give(d, h->finished);
    h->finished = NULL;
    say_facts(base, h->set);
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* A result that the program has, and its device, which stays open for it. */
typedef struct result {
    void *data;
    hc_device *device;
    struct result *next;
} result;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static result *_Atomic results;

int hc__devices_give(const hpccoll_world *world, void *data) {
    const hc_accelerator *a = world->base->devices.c;
    char why[HC_DEVICE_WHY];
    result *made = malloc(sizeof *made);
    if (!made || hc_device_open(a->device->number, &a->config.files, &made->device, why) < 0) {
        free(made);
        return hc__error(HC_NO_MEMORY, "no memory for a result");
    }
    made->data = data;
    pthread_mutex_lock(&lock);
    made->next = results;
    results = made;
    pthread_mutex_unlock(&lock);
    return HC_OK;
}

int hc__devices_take_back(void *data) {
    result *found = NULL, *before = NULL;
    if (!results || !data)
        return 0;
    pthread_mutex_lock(&lock);
    for (found = results; found && found->data != data; found = found->next)
        before = found;
    if (found && before)
        before->next = found->next;
    else if (found)
        results = found->next;
    pthread_mutex_unlock(&lock);
    if (!found)
        return 0;
    hc_device_result_free(found->device, data, NULL);
    hc_device_close(found->device);
    free(found);
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - the devices that this process has opened: one entry per device number, with a count of its users.
 */
#include "cuda/driver/device_own.h"
#include "cuda/driver/device_pool.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OUT_OF_MEMORY 2 /* the driver's status */
#define END_TRIES 2000  /* milliseconds */

typedef struct device {
    hc_device base;
    struct device *next;
    int users;
    pthread_mutex_t lock; /* of pool, kernels and events */
    hc_gpu_event *events; /* that were given back */
    size_t nevents, room;
    hc__pool pool;
    hc_packer packer;
    hc_summer summer;   /* not open before the first sum */
    char kernels[4096]; /* hc_device_files.kernels */
} device;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static device *devices; /* open ones; per process, as the driver's contexts, streams and memory are */

static device *device_of(hc_device *base) {
    return (device *)base;
}

/* ---- failures -------------------------------------------------------------------------------------------- */

int hc__device_failed(const hc_device *d, int status, const char *what, char *text, size_t room) {
    if (!status)
        return HC_OK;
    snprintf(text, room, "device %d (%s): %s: %s (%d)", d->number, d->pci, what, hc_driver_text(&d->driver, status),
             status);
    return status == OUT_OF_MEMORY ? HC_NO_MEMORY : HC_TRANSPORT;
}

static int refuse(char *why, const char *text, const char *remedy) {
    snprintf(why, HC_DEVICE_WHY, "%s (%s)", text, remedy);
    return HC_UNSUPPORTED;
}

/* ---- opening and closing ----------------------------------------------------------------------------------- */

hc_gpu_context hc_device_enter(const hc_device *d) {
    hc_gpu_context before = NULL;
    d->driver.context_now(&before);
    if (before != d->context)
        d->driver.context_use(d->context);
    return before;
}

void hc_device_leave(const hc_device *d, hc_gpu_context before) {
    if (before != d->context)
        d->driver.context_use(before);
}

int hc_device_of(const hc_device *d, const void *address) {
    int number = -1;
    return d->driver.pointer_fact(&number, HC_POINTER_DEVICE, hc__address(address)) == 0 ? number : -1;
}

/* Retains the primary context, which the first user creates, and loads the kernels into it. */
static int begin(device *d, char *why) {
    hc_driver *driver = &d->base.driver;
    char text[512] = "";
    int handle = 0, status = driver->device_get(&handle, d->base.number);
    if (!status)
        status = driver->device_pci(d->base.pci, (int)sizeof d->base.pci, handle);
    for (char *c = d->base.pci; *c; c++)
        *c = (char)tolower(*c);
    if (!status)
        status = driver->context_retain(&d->base.context, handle);
    status = hc__device_failed(&d->base, status, "it cannot be used", text, sizeof text);
    if (status == HC_OK) {
        hc_gpu_context before = hc_device_enter(&d->base);
        status = hc_packer_open(&d->packer, driver, d->kernels);
        if (status < 0) {
            snprintf(text, sizeof text, "device %d (%s): %s", d->base.number, d->base.pci, d->packer.module.text);
            hc_packer_close(&d->packer);
        }
        hc_device_leave(&d->base, before);
        if (status < 0)
            driver->context_release(handle);
    }
    return status < 0 ? refuse(why, text, "`nvidia-smi` on this node tells more") : HC_OK;
}

/* Resolves HC_DEVICE_CURRENT and checks the number. */
static int find_number(const hc_driver *driver, int number, char *why) {
    int current = 0;
    char text[128];
    if (number == HC_DEVICE_CURRENT)
        number = driver->context_device(&current) == 0 ? current : 0;
    if (number >= 0 && number < driver->devices)
        return number;
    snprintf(text, sizeof text, "there is no device %d: this process sees %d", number, driver->devices);
    return refuse(why, text, "CUDA_VISIBLE_DEVICES, or the job's --gpus-per-task, says which; hpccoll info lists them");
}

static device *find(int number) {
    device *d = devices;
    while (d && d->base.number != number)
        d = d->next;
    return d;
}

static int open_number(const hc_driver *driver, int number, const char *kernels, hc_device **out, char *why) {
    number = find_number(driver, number, why);
    if (number < 0)
        return number;
    device *d = find(number);
    if (!d) {
        d = calloc(1, sizeof *d);
        if (!d)
            return refuse(why, "out of memory", "free some");
        d->base.driver = *driver;
        d->base.number = number;
        snprintf(d->kernels, sizeof d->kernels, "%s", kernels);
        d->pool.driver = &d->base.driver;
        int status = begin(d, why);
        if (status < 0) {
            free(d);
            return status;
        }
        pthread_mutex_init(&d->lock, NULL);
        d->next = devices;
        devices = d;
    }
    d->users++;
    *out = &d->base;
    return HC_OK;
}

static int open_any(int number, const void *address, const hc_device_files *files, hc_device **out, char *why) {
    hc_device *asked = malloc(sizeof *asked); /* its texts are large */
    *out = NULL;
    if (!asked)
        return refuse(why, "out of memory", "free some");
    pthread_mutex_lock(&opening);
    int status = hc_driver_open(&asked->driver, files->driver);
    if (status < 0)
        refuse(why, asked->driver.library.text, asked->driver.library.remedy);
    else if (address && (number = hc_device_of(asked, address)) < 0) {
        refuse(why, "the address is on no device", "bring arrays of CuPy or PyTorch, or on the host");
        status = HC_INVALID;
    } else
        status = open_number(&asked->driver, number, files->kernels, out, why);
    pthread_mutex_unlock(&opening);
    free(asked);
    return status;
}

int hc_device_open(int number, const hc_device_files *files, hc_device **out, char *why) {
    return open_any(number, NULL, files, out, why);
}

int hc_device_open_at(const void *address, const hc_device_files *files, hc_device **out, char *why) {
    return open_any(HC_DEVICE_CURRENT, address, files, out, why);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

int hc__device_take(hc_device *base, enum hc__memory_kind kind, size_t bytes, void **memory) {
    device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    int status = hc__pool_take(&d->pool, kind, bytes, memory);
    pthread_mutex_unlock(&d->lock);
    return status;
}

void hc__device_give(hc_device *base, void *memory) {
    device *d = device_of(base);
    if (!memory)
        return;
    pthread_mutex_lock(&d->lock);
    hc__pool_give(&d->pool, memory);
    pthread_mutex_unlock(&d->lock);
}

int hc_device_result_new(hc_device *base, size_t bytes, void **result) {
    hc_gpu_context before = hc_device_enter(base);
    int status = hc__device_take(base, HC__ON_DEVICE, bytes, result);
    hc_device_leave(base, before);
    return status;
}

void hc_device_result_free(hc_device *base, void *result, hc_gpu_stream stream) {
    device *d = device_of(base);
    if (!result)
        return;
    hc_gpu_context before = hc_device_enter(base);
    pthread_mutex_lock(&d->lock);
    hc__pool_give_behind(&d->pool, result, stream);
    pthread_mutex_unlock(&d->lock);
    hc_device_leave(base, before);
}

int hc__stream_ends(const hc_device *d, hc_gpu_stream stream) {
    for (int i = 0; stream && i < END_TRIES; i++) {
        if (d->driver.stream_query(stream) != HC_DRIVER_NOT_READY)
            return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return !stream;
}

/* ---- events: making one takes longer than a small message, so those that are given back are kept --------------- */

int hc_device_event_take(hc_device *base, hc_gpu_event *event) {
    device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    *event = d->nevents ? d->events[--d->nevents] : NULL;
    pthread_mutex_unlock(&d->lock);
    if (*event)
        return 0;
    hc_gpu_context before = hc_device_enter(base);
    int status = base->driver.event_new(event, HC_EVENT_DISABLE_TIMING);
    hc_device_leave(base, before);
    return status;
}

/* 0: no memory. */
static int keep_event(device *d, hc_gpu_event event) {
    size_t room = 2 * d->room + 16;
    hc_gpu_event *events = d->nevents < d->room ? d->events : realloc(d->events, room * sizeof *events);
    if (!events)
        return 0;
    d->room = d->nevents < d->room ? d->room : room;
    d->events = events;
    d->events[d->nevents++] = event;
    return 1;
}

void hc_device_event_give(hc_device *base, hc_gpu_event event) {
    device *d = device_of(base);
    if (!event)
        return;
    pthread_mutex_lock(&d->lock);
    int is_kept = keep_event(d, event);
    pthread_mutex_unlock(&d->lock);
    if (is_kept)
        return;
    hc_gpu_context before = hc_device_enter(base);
    base->driver.event_free(event);
    hc_device_leave(base, before);
}

int hc_device_event_record(const hc_device *d, hc_gpu_event event, hc_gpu_stream stream) {
    hc_gpu_context before = hc_device_enter(d);
    int status = d->driver.event_record(event, stream);
    hc_device_leave(d, before);
    return status;
}

int hc_device_event_follow(const hc_device *d, hc_gpu_stream stream, hc_gpu_event event) {
    hc_gpu_context before = hc_device_enter(d);
    int status = d->driver.stream_wait_event(stream, event, 0);
    hc_device_leave(d, before);
    return status;
}

int hc_device_event_query(const hc_device *d, hc_gpu_event event) {
    hc_gpu_context before = hc_device_enter(d);
    int status = d->driver.event_query(event);
    hc_device_leave(d, before);
    return status;
}

/* ---- kernels ------------------------------------------------------------------------------------------------- */

int hc__device_pack(hc_device *base, const hc_pack_order *order, hc_gpu_stream stream, char *text, size_t room) {
    device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    int status = hc_pack_launch(&d->packer, order, stream);
    if (status < 0)
        snprintf(text, room, "device %d (%s): %s", base->number, base->pci, d->packer.module.text);
    pthread_mutex_unlock(&d->lock);
    return status;
}

int hc__device_sum(hc_device *base, const hc_sum_order *order, hc_gpu_stream stream, char *text, size_t room) {
    device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    int opens = !d->summer.loaded, status = opens ? hc_summer_open(&d->summer, &base->driver, d->kernels) : HC_OK;
    if (status == HC_OK)
        status = hc_sum_launch(&d->summer, order, stream);
    if (status < 0)
        snprintf(text, room, "device %d (%s): %s", base->number, base->pci, d->summer.text);
    if (status < 0 && opens)
        hc_summer_close(&d->summer);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* ---- closing ------------------------------------------------------------------------------------------------- */

static void destroy(device *d) {
    const hc_driver *driver = &d->base.driver;
    hc_gpu_context before = hc_device_enter(&d->base);
    hc__pool_free(&d->pool);
    for (size_t i = 0; i < d->nevents; i++)
        driver->event_free(d->events[i]);
    free(d->events);
    hc_packer_close(&d->packer);
    hc_summer_close(&d->summer);
    hc_device_leave(&d->base, before);
    int handle = 0;
    if (driver->device_get(&handle, d->base.number) == 0)
        driver->context_release(handle);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

void hc_device_close(hc_device *base) {
    if (!base)
        return;
    pthread_mutex_lock(&opening);
    device *d = device_of(base), **at = &devices;
    if (--d->users == 0) {
        while (*at != d)
            at = &(*at)->next;
        *at = d->next;
        destroy(d);
    }
    pthread_mutex_unlock(&opening);
}

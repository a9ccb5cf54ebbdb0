/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c - communicators of the fake NCCL: how ranks meet and leave.
 */
#include "comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"
#include "transport/transport.h"

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

void comm_let_go(comm *c) {
    if (atomic_fetch_sub(&c->users, 1) > 1)
        return;
    if (c->segment)
        munmap(c->segment, sizeof(segment));
    free(c);
}

/* ---- failures that a test asks for ---------------------------------------------------------------------- */

int comm_planted(const comm *c, const char *where, int number) {
    char name[16];
    int rank, status, at;
    const char *text = getenv("FAKE_NCCL_FAIL");
    if (!text || sscanf(text, "%15[^:]:%d:%d:%d", name, &rank, &status, &at) != 4)
        return -1;
    return strcmp(name, where) == 0 && rank == c->rank && at == number ? status : -1;
}

/* ---- communicators ---------------------------------------------------------------------------------------- */

int fake_get_version(int *version) {
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : FAKE_NCCL_VERSION;
    return 0;
}

const char *fake_error_text(int status) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return status >= 0 && status <= HC_NCCL_IN_PROGRESS ? texts[status] : "unknown result code";
}

const char *fake_last_error(hc_nccl_comm c) {
    const char *words = getenv("FAKE_NCCL_WORDS");
    (void)c;
    return words ? words : "";
}

/* Numbers of processes come again, and who was killed has left its segments: the time makes a name this one's alone. */
static _Atomic unsigned ids;
static struct timespec loaded;

__attribute__((constructor)) static void note_time(void) {
    clock_gettime(CLOCK_REALTIME, &loaded);
}

static void name_segment(char *name, size_t space, unsigned number) {
    snprintf(name, space, "/fake-nccl-%d-%llx-%u", getpid(),
             (unsigned long long)loaded.tv_sec * 1000000000ull + (unsigned long long)loaded.tv_nsec, number);
}

int fake_get_id(hc_nccl_id *id) {
    memset(id, 0, sizeof *id);
    name_segment(id->bytes, sizeof id->bytes, ids++);
    return 0;
}

/* Ranks that failed have not met in theirs. */
__attribute__((destructor)) static void leave_no_segment(void) {
    char name[64];
    for (unsigned i = 0; i < ids; i++) {
        name_segment(name, sizeof name, i);
        fake_segment_unlink(name);
    }
}

static comm *comm_new(const hc_nccl_config *config) {
    comm *c = calloc(1, sizeof *c);
    c->users = 1;
    c->blocking = !config || config->blocking != 0;
    c->status = HC_NCCL_IN_PROGRESS;
    return c;
}

static void launch_late(comm *c) {
    struct bundle *b = c->late;
    c->late = NULL;
    c->status = fake_enqueue(c->late_stream, bundle_run, b) ? HC_NCCL_DRIVER_FAILED : HC_NCCL_SUCCESS;
}

/* What can be done now towards a complete communicator, or a call. */
static void progress(comm *c) {
    if (c->late && --c->late_asks <= 0)
        launch_late(c);
    if (c->late)
        return;
    if (c->status != HC_NCCL_IN_PROGRESS)
        return;
    if (!c->segment) {
        c->segment = fake_segment_open(c->name);
        if (!c->segment) {
            c->status = HC_NCCL_SYSTEM_FAILED;
            return;
        }
        atomic_fetch_add(&c->segment->attached, 1);
    }
    if (atomic_load(&c->segment->attached) < c->size)
        return;
    if (c->rank == 0)
        fake_segment_unlink(c->name);
    c->status = HC_NCCL_SUCCESS;
}

static int begin(comm *c) {
    progress(c);
    while (c->blocking && c->status == HC_NCCL_IN_PROGRESS) {
        sched_yield();
        progress(c);
    }
    return c->status;
}

int fake_init(hc_nccl_comm *handle, int size, hc_nccl_id id, int rank, hc_nccl_config *config) {
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size || (config && config->magic != 0xcafebeef))
        return HC_NCCL_INVALID_ARGUMENT;
    comm *c = comm_new(config);
    c->rank = rank;
    c->size = size;
    snprintf(c->name, sizeof c->name, "%.63s", id.bytes);
    int status = comm_planted(c, "init", 1);
    if (status > 0) {
        comm_let_go(c);
        return status;
    }
    *handle = c;
    return begin(c);
}

int fake_get_async_error(hc_nccl_comm handle, int *status) {
    comm *c = handle;
    progress(c);
    *status = c->status;
    return 0;
}

int fake_finalize(hc_nccl_comm handle) {
    return ((comm *)handle)->status;
}

int fake_destroy(hc_nccl_comm handle) {
    comm_let_go(handle);
    return 0;
}

/* What is in streams ends without touching memory. */
int fake_abort(hc_nccl_comm handle) {
    comm *c = handle;
    c->aborted = 1;
    if (c->late)
        launch_late(c);
    if (c->status == HC_NCCL_IN_PROGRESS && c->segment)
        fake_segment_unlink(c->name);
    comm_let_go(c);
    return 0;
}

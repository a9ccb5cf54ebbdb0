/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_load.c - opens UCX's library and finds its functions.
 *
 * A process can have only one UCX: a second version cannot be loaded beside it (undefined symbols). So a UCX that is
 * already loaded, such as an MPI's, has priority, and the first one opened stays.
 */
#include "transport/net/ucx_parts.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#define NAME "libucp.so.0"
#define MINOR 13 /* ucx_api.h declares the interface of UCX 1.13 */

hc__ucx_functions hc__ucx;
static int is_open;
static char file_name[4096];

/* Loading UCX replaces the program's signal handlers (Python's faulthandler), so they are restored. */
static const int handled[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
#define HANDLED (sizeof handled / sizeof *handled)

static void *load(const char *file) {
    struct sigaction before[HANDLED];
    for (size_t i = 0; i < HANDLED; i++)
        sigaction(handled[i], NULL, &before[i]);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < HANDLED; i++)
        sigaction(handled[i], &before[i], NULL);
    return library;
}

/* Returns NULL, or the name of a missing function. */
static const char *find_functions(void *library) {
#define PLACE(result, name, arguments) {#name, (void *)&hc__ucx.name},
    const struct {
        const char *name;
        void *pointer;
    } calls[] = {HC_UCX_CALLS(PLACE)};
#undef PLACE
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = dlsym(library, calls[i].name);
        if (!function)
            return calls[i].name;
        memcpy(calls[i].pointer, &function, sizeof function);
    }
    return NULL;
}

int hc_ucx_open(const char *file, char why[HC_UCX_WHY]) {
    Dl_info info;
    unsigned major = 0, minor = 0, release = 0;
    if (is_open)
        return HC_OK;
    void *library = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD);
    if (!library && file)
        library = load(file);
    if (!library) {
        const char *error = file ? dlerror() : NULL;
        snprintf(why, HC_UCX_WHY, "%s", error ? error : "no UCX is in this process");
        return HC_INVALID;
    }
    const char *lacks = find_functions(library);
    if (!lacks)
        hc__ucx.ucp_get_version(&major, &minor, &release);
    if (lacks || major != 1 || minor < MINOR) {
        snprintf(why, HC_UCX_WHY, "UCX 1.%d or a later 1.x is needed, and this is %u.%u.%u%s%s", MINOR, major, minor,
                 release, lacks ? ", which has no " : "", lacks ? lacks : "");
        return HC_INVALID; /* it stays loaded: others may use it */
    }
    void *address;
    memcpy(&address, &hc__ucx.ucp_worker_progress, sizeof address);
    if (dladdr(address, &info))
        snprintf(file_name, sizeof file_name, "%s", info.dli_fname);
    is_open = 1;
    return HC_OK;
}

const char *hc_ucx_version(void) {
    return is_open ? hc__ucx.ucp_get_version_string() : "";
}

const char *hc_ucx_file(void) {
    return file_name;
}

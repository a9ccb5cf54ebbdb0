/* SPDX-License-Identifier: Apache-2.0
 *
 * register.c - registers our custom calls with an XLA that has no Python function for that, as TensorFlow's.
 */
#define _GNU_SOURCE
#include "xla/xla.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static char problem[256];

/* Finds XLA's table of functions. NULL: not found, and `problem` has the reason. */
static const hc_ffi_api *find(const char *library, const char *table) {
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    const hc_ffi_api *(*get)(void) = NULL;
    if (loaded)
        *(void **)&get = dlsym(loaded, table);
    const hc_ffi_api *api = get ? get() : NULL;
    if (!api)
        snprintf(problem, sizeof problem, "%s %s", library,
                 loaded ? "has no table of functions for custom calls" : "is not loaded in this process");
    return api;
}

static int has_futures(const hc_ffi_api *api) {
    return api->version.major == HC_FFI_MAJOR && api->version.minor >= HC_FFI_LEAST && api->size >= sizeof *api;
}

static void put(const hc_ffi_api *api, const char *name, void *(*handler)(hc_ffi_frame *)) {
    static const char platform[] = "Host";
    hc_ffi_registration r = {
        .size = sizeof r, .name = {name, strlen(name)}, .platform = {platform, strlen(platform)}, .execute = handler};
    if (api->handler_register(&r))
        snprintf(problem, sizeof problem, "its XLA refuses the custom call %s", name);
}

const char *hc_xla_register(const char *library, const char *table) {
    const hc_ffi_api *api = find(library, table);
    if (!api)
        return problem;
    if (!has_futures(api)) {
        snprintf(problem, sizeof problem, "version %d.%d of its XLA's interface has no futures for custom calls",
                 api->version.major, api->version.minor);
        return problem;
    }
    put(api, HC_XLA_CALL, hc_xla_call);
    put(api, HC_XLA_NOTHING, hc_xla_nothing);
    return problem;
}

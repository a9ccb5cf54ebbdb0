/* SPDX-License-Identifier: Apache-2.0
 *
 * library.c - opens a library at run time, in the documented order, and records every failure as text.
 */
#include "cuda/driver/library.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void say(hc_library *library, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(hc_library *library, const char *format, ...) {
    size_t used = strlen(library->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(library->text + used, sizeof library->text - used, format, arguments);
    va_end(arguments);
}

int hc_library_refuse(hc_library *library, const char *remedy, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(library->text, sizeof library->text, format, arguments);
    va_end(arguments);
    snprintf(library->remedy, sizeof library->remedy, "%s", remedy);
    library->handle = NULL;
    return HC_UNSUPPORTED;
}

/* Tries one name; adds a failure to the text. */
static int try(hc_library *library, const char *name, int in_process) {
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | (in_process ? RTLD_NOLOAD : 0));
    if (library->handle)
        return 1;
    const char *why = dlerror();
    if (in_process)
        say(library, "%s is not in this process; ", name);
    else if (!why || strncmp(why, name, strlen(name)) == 0) /* the linker's text names the file already */
        say(library, "%s; ", why ? why : name);
    else
        say(library, "%s: %s; ", name, why);
    return 0;
}

static int try_all(hc_library *library, const char *const *names, int in_process) {
    for (; names && *names; names++)
        if (try(library, *names, in_process))
            return 1;
    return 0;
}

static int find(hc_library *library, const hc_search *search) {
    if (search->named && search->named[0]) {
        if (try(library, search->named, 0))
            return HC_OK;
        snprintf(library->remedy, sizeof library->remedy, "unset %s, or name the file of %s", search->knob,
                 search->what);
    } else {
        if (try_all(library, search->sonames, 1) || try_all(library, search->files, 0) ||
            try_all(library, search->sonames, 0))
            return HC_OK;
        snprintf(library->remedy, sizeof library->remedy, "%s, or name the file with %s", search->remedy, search->knob);
    }
    size_t used = strlen(library->text);
    if (used >= 2 && strcmp(library->text + used - 2, "; ") == 0)
        library->text[used - 2] = 0;
    return HC_UNSUPPORTED;
}

static int fill(hc_library *library, const hc_search *search, const hc_symbol *symbols, int n, void *table) {
    for (int i = 0; i < n; i++) {
        void *address = dlsym(library->handle, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
        if (!address && symbols[i].needed)
            return hc_library_refuse(library, search->remedy, "%s has no %s: it is too old, or not %s", library->path,
                                     symbols[i].name, search->what);
    }
    return HC_OK;
}

static int open_and_fill(hc_library *library, const hc_search *search, const hc_symbol *symbols, int n, void *table) {
    memset(library, 0, sizeof *library);
    snprintf(library->text, sizeof library->text, "%s was not found: ", search->what);
    int status = find(library, search);
    if (status < 0)
        return status;
    struct link_map *map = NULL;
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(library->path, sizeof library->path, "%s", map->l_name);
    library->text[0] = 0;
    return fill(library, search, symbols, n, table);
}

/* One thread at a time: this reads dlopen()'s records of a library, which another thread's dlopen() may write. The
 * linker has a lock for them, but does not promise that callers may rely on it. */
int hc_library_open(hc_library *library, const hc_search *search, const hc_symbol *symbols, int n, void *table) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    int status = open_and_fill(library, search, symbols, n, table);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

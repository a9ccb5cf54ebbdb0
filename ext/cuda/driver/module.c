/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - loads kernels from their text and launches them.
 */
#include "cuda/driver/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 2048u /* per launch at most: several waves on any GPU, and enough work for each block (docs/gpu.md) */

int hc_module_failed(hc_module *m, const char *what, int status) {
    snprintf(m->text, sizeof m->text, "%s: %s (%d)", what, hc_driver_text(m->driver, status), status);
    return HC_TRANSPORT;
}

/* All of a file, with a 0 behind it; NULL: errno says why. */
static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t used = 0, room = 1 << 16;
    char *text = file ? malloc(room) : NULL;
    for (size_t n; text && (n = fread(text + used, 1, room - used - 1, file)) > 0;) {
        used += n;
        if (room - used > 1)
            continue;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[used] = 0;
    if (file)
        fclose(file);
    return text;
}

static int load(hc_module *m, const char *folder) {
    char path[4352], what[64];
    snprintf(path, sizeof path, "%s/%s", folder, m->texts->file);
    snprintf(what, sizeof what, "loading %s", m->texts->title);
    char *text = read_text(path);
    if (!text) {
        snprintf(m->text, sizeof m->text, "%s: %.120s: %s", what, path, strerror(errno));
        return HC_TRANSPORT;
    }
    int status = m->driver->module_load(&m->loaded, text);
    free(text);
    return status ? hc_module_failed(m, what, status) : HC_OK;
}

int hc_module_open(hc_module *m, const hc_driver *driver, const hc_module_text *texts, const char *folder) {
    *m = (hc_module){.texts = texts, .driver = driver};
    int status = load(m, folder);
    if (status < 0)
        return status;
    for (int i = 0; i < texts->n; i++) {
        status = driver->module_function(&m->function[i], m->loaded, texts->name(i));
        if (status)
            return hc_module_failed(m, texts->name(i), status);
    }
    return HC_OK;
}

void hc_module_close(hc_module *m) {
    if (m->loaded)
        m->driver->module_free(m->loaded);
    m->loaded = NULL;
}

int hc_module_launch(hc_module *m, int kernel, uint64_t blocks, unsigned threads, void *job, hc_gpu_stream stream) {
    unsigned grid = blocks < BLOCKS ? (unsigned)blocks : BLOCKS;
    int status = m->driver->launch(m->function[kernel], grid, 1, 1, threads, 1, 1, 0, stream, &job, NULL);
    return status ? hc_module_failed(m, m->texts->name(kernel), status) : HC_OK;
}

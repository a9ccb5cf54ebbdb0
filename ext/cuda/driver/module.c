/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - kernels are loaded from their text, launched, and what the driver says to that.
 */
#include "cuda/driver/module.h"

#include <stdio.h>

#define BLOCKS 2048u /* at most, in a launch: several waves on any card, and much work for each block. An estimate */

int hc_module_failed(hc_module *m, const char *what, int status) {
    snprintf(m->text, sizeof m->text, "%s: %s (%d)", what, hc_driver_text(m->driver, status), status);
    return HC_TRANSPORT;
}

int hc_module_open(hc_module *m, const hc_driver *driver, const hc_module_text *texts) {
    char what[64];
    *m = (hc_module){.texts = texts, .driver = driver};
    snprintf(what, sizeof what, "loading %s", texts->title);
    int status = driver->module_load(&m->loaded, texts->ptx);
    if (status)
        return hc_module_failed(m, what, status);
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

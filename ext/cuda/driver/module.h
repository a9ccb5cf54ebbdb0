/* SPDX-License-Identifier: Apache-2.0
 *
 * module.h - a set of kernels that the driver has compiled from their text: private to pack_launch.c and sum_launch.c.
 *
 * Every driver since CUDA 11 compiles the text for the GPU at hand when it is first loaded, and caches the result. So
 * neither the build nor the job needs a CUDA compiler.
 */
#pragma once

#include "cuda/driver/driver.h"

#define HC_MODULE_KERNELS 20

typedef struct hc_module_text {
    const char *title, *file; /* "the pack kernels", "pack.ptx" */
    const char *(*name)(int kernel);
    int n;
} hc_module_text;

typedef struct hc_module {
    const hc_module_text *texts;
    const hc_driver *driver;
    hc_gpu_module loaded; /* NULL: not open */
    hc_gpu_function function[HC_MODULE_KERNELS];
    char text[256]; /* of the last failure */
} hc_module;

/* Loads the kernels from their file in the folder. TRANSPORT with text where it cannot be read or the driver refuses;
 * close() is needed after a failure, too. */
int hc_module_open(hc_module *, const hc_driver *, const hc_module_text *, const char *folder);
void hc_module_close(hc_module *); /* all launches must be done */
/* Launches `blocks` blocks in the stream, or fewer that share the work. OK, or TRANSPORT with text. */
int hc_module_launch(hc_module *, int kernel, uint64_t blocks, unsigned threads, void *job, hc_gpu_stream);
/* Returns TRANSPORT; the text gets `what` and the driver's text for the status. */
int hc_module_failed(hc_module *, const char *what, int status);

/* SPDX-License-Identifier: Apache-2.0
 *
 * module.h - a set of kernels that the driver has compiled from their text: private to pack_launch.c and sum_launch.c.
 *
 * A driver of any age since CUDA 11 compiles the text when it is first loaded, for the GPU that is there, and keeps the
 * result in its cache: no compiler of ours is needed where hpccoll is built or runs.
 */
#ifndef HC_MODULE_H
#define HC_MODULE_H

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

/* Loads them from their file in the folder; TRANSPORT with text where it cannot be read or the driver refuses: then
 * they are still to be closed. */
int hc_module_open(hc_module *, const hc_driver *, const hc_module_text *, const char *folder);
void hc_module_close(hc_module *); /* all launches must be done */
/* A launch of as many blocks as the work has, or fewer that share it, in `stream`. OK, or TRANSPORT with text. */
int hc_module_launch(hc_module *, int kernel, uint64_t blocks, unsigned threads, void *job, hc_gpu_stream);
/* TRANSPORT, and in the text what was done and the driver's word for its status. */
int hc_module_failed(hc_module *, const char *what, int status);

#endif

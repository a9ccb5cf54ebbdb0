/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - the fake driver's modules: the text must be PTX with the entry, the code is a host function.
 */
#include "fake.h"
#include "names.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, INVALID_IMAGE = 200, NOT_FOUND = 500, ARGUMENT_ROOM = 4096 };

int fake_module_load(hc_gpu_module *module, const void *image) {
    int status = fake_failure("cuModuleLoadData");
    if (status)
        return status;
    if (!strstr(image, ".version") || !strstr(image, ".target"))
        return INVALID_IMAGE;
    *module = strdup(image);
    return 0;
}

int fake_module_free(hc_gpu_module module) {
    free(module);
    return 0;
}

int fake_module_function(hc_gpu_function *function, hc_gpu_module module, const char *name) {
    char entry[128], symbol[128];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    snprintf(symbol, sizeof symbol, "kernel_%s", name);
    static const char here;
    Dl_info self;
    if (!strstr(module, entry) || !dladdr(&here, &self))
        return NOT_FOUND;
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = library ? dlsym(library, symbol) : NULL;
    return *function ? 0 : NOT_FOUND;
}

typedef struct launched {
    const fake_kernel *kernel;
    unsigned grid, block;
    char argument[];
} launched;

static int run_kernel(void *data) {
    launched *l = data;
    l->kernel->run(l->argument, l->grid, l->block);
    free(l);
    return 1;
}

int fake_launch(hc_gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, hc_gpu_stream stream, void **arguments,
                void **extra) {
    const fake_kernel *kernel = function;
    int status = fake_failure("cuLaunchKernel");
    if (status)
        return status;
    if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 || block_z != 1 ||
        shared_bytes || extra || kernel->argument_bytes > ARGUMENT_ROOM)
        return INVALID_VALUE;
    launched *l = malloc(sizeof *l + kernel->argument_bytes);
    *l = (launched){kernel, grid_x, block_x};
    memcpy(l->argument, arguments[0], kernel->argument_bytes); /* arguments are taken at the launch */
    return fake_enqueue(stream, run_kernel, l);
}

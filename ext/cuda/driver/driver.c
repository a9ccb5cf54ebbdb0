/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c - finds the driver of a GPU, fills its table of functions, and asks for the devices.
 */
#include "cuda/driver/driver.h"

#include <dlfcn.h>

static const hc_symbol symbols[] = {
#define X(member, symbol, arguments) {symbol, offsetof(hc_driver, member), 1},
    HC_DRIVER_FUNCTIONS(X)
#undef X
};
static const char *const sonames[] = {"libcuda.so.1", NULL};

const char *hc_driver_text(const hc_driver *driver, int status) {
    const char *text = NULL;
    return driver->error_text(status, &text) == 0 && text ? text : "unknown error";
}

/* Checks one of the first calls: a failure makes the driver unusable. */
static int first(hc_driver *driver, const char *call, int status) {
    if (status == 0)
        return HC_OK;
    const char *remedy = "`nvidia-smi` on this node tells more; see CUDA_VISIBLE_DEVICES, too";
    return hc_library_refuse(&driver->library, remedy, "%s of %s: %s (%d)", call, driver->library.path,
                             hc_driver_text(driver, status), status);
}

int hc_driver_open(hc_driver *driver, const char *named) {
    hc_search search = {
        .what = "the CUDA driver",
        .knob = "HPCCOLL_CUDA_LIBRARY",
        .named = named,
        .sonames = sonames,
        .remedy = "run on a node with an NVIDIA GPU and its driver (in a container with --nv or --gpus all)"};
    int status = hc_library_open(&driver->library, &search, symbols, (int)(sizeof symbols / sizeof *symbols), driver);
    if (status == HC_OK)
        status = first(driver, "initialising", driver->init(0));
    if (status == HC_OK)
        status = first(driver, "asking the version", driver->get_version(&driver->version));
    if (status == HC_OK)
        status = first(driver, "counting the devices", driver->device_count(&driver->devices));
    return status;
}

/* The driver that this process has opened, or NULL. */
static void *in_process(const char *named) {
    const char *const given[] = {named, NULL};
    void *library = NULL;
    for (const char *const *file = named && *named ? given : sonames; *file && !library; file++)
        library = dlopen(*file, RTLD_NOW | RTLD_NOLOAD);
    return library;
}

int hc_driver_in_process(const char *named) {
    return in_process(named) != NULL;
}

int hc_driver_memory(const hc_driver *driver, const void *address) {
    hc_gpu_address at = (hc_gpu_address)(uintptr_t)address;
    unsigned kind = 0, managed = 0;
    int device = -1;
    if (driver->pointer_fact(&kind, HC_POINTER_MEMORY, at) != 0)
        return -1; /* memory that the driver does not know is the host's */
    if (kind != HC_MEMORY_OF_DEVICE && (driver->pointer_fact(&managed, HC_POINTER_MANAGED, at) != 0 || !managed))
        return -1;
    return driver->pointer_fact(&device, HC_POINTER_DEVICE, at) == 0 ? device : -1;
}

int hc_driver_current(const char *named) {
    int device = -1;
    hc_gpu_context context = NULL;
    int (*now)(hc_gpu_context *), (*device_of)(int *);
    void *library = in_process(named);
    if (!library)
        return -1;
    *(void **)&now = dlsym(library, "cuCtxGetCurrent");
    *(void **)&device_of = dlsym(library, "cuCtxGetDevice");
    int known = now && device_of && now(&context) == 0 && context && device_of(&device) == 0;
    return known ? device : -1;
}

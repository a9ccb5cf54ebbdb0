/* SPDX-License-Identifier: Apache-2.0
 *
 * on_device.h - device memory for programs over the C interface, by the driver that HPCCOLL_CUDA_LIBRARY names: the
 * fake one, or a GPU's.
 */
#ifndef HC_TEST_CAPI_ON_DEVICE_H
#define HC_TEST_CAPI_ON_DEVICE_H

#include "ranks.h"

#include <dlfcn.h>

static struct {
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *);
    int (*new)(uint64_t *, size_t), (*pin)(void **, size_t, unsigned);
    int (*up)(uint64_t, const void *, size_t, void *), (*down)(void *, uint64_t, size_t, void *);
    int (*stream_new)(void **, unsigned, int), (*wait)(void *);
    void *stream; /* it does not wait for other streams */
} gpu;

static void *gpu_function(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found);
    return found;
}

/* Makes the context of a GPU the thread's. */
static void use_gpu(int number) {
    void *context = NULL;
    CHECK(gpu.retain(&context, number) == 0 && gpu.use(context) == 0);
}

static void open_gpu(void) {
    const char *named = getenv("HPCCOLL_CUDA_LIBRARY"), *elsewhere = getenv("TEST_CUDA_LIBRARY");
    void *library = dlopen(named ? named : elsewhere ? elsewhere : "libcuda.so.1", RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    *(void **)&gpu.init = gpu_function(library, "cuInit");
    *(void **)&gpu.retain = gpu_function(library, "cuDevicePrimaryCtxRetain");
    *(void **)&gpu.use = gpu_function(library, "cuCtxSetCurrent");
    *(void **)&gpu.new = gpu_function(library, "cuMemAlloc_v2");
    *(void **)&gpu.pin = gpu_function(library, "cuMemHostAlloc");
    *(void **)&gpu.up = gpu_function(library, "cuMemcpyHtoDAsync_v2");
    *(void **)&gpu.down = gpu_function(library, "cuMemcpyDtoHAsync_v2");
    *(void **)&gpu.stream_new = gpu_function(library, "cuStreamCreateWithPriority");
    *(void **)&gpu.wait = gpu_function(library, "cuStreamSynchronize");
    CHECK(gpu.init(0) == 0);
    use_gpu(0);
    CHECK(gpu.stream_new(&gpu.stream, 1, 0) == 0);
}

static void *device_new(size_t bytes) {
    uint64_t address = 0;
    CHECK(gpu.new(&address, bytes) == 0);
    return (void *)(uintptr_t)address;
}

/* Both wait for the copy alone, and for no other work on the device. */
static void upload(void *to, const void *from, size_t bytes) {
    CHECK(!bytes || (gpu.up((uint64_t)(uintptr_t)to, from, bytes, gpu.stream) == 0 && gpu.wait(gpu.stream) == 0));
}

static void download(void *to, const void *from, size_t bytes) {
    CHECK(!bytes || (gpu.down(to, (uint64_t)(uintptr_t)from, bytes, gpu.stream) == 0 && gpu.wait(gpu.stream) == 0));
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - a CUDA driver whose "device memory" is this machine's: where PLANTED is set, memory that only the driver
 * may touch, so that an MPI that follows the address dies as it does on a GPU that it was not built for.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM (4u << 20)

static void guard(uint64_t address, int on) {
    if (getenv("PLANTED"))
        mprotect((void *)(uintptr_t)address, ROOM, on ? PROT_NONE : PROT_READ | PROT_WRITE);
}

int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    return getenv("PLANTED") && strcmp(getenv("PLANTED"), "none") == 0 ? 100 : 0;
}

int cuGetErrorString(int status, const char **text);
int cuGetErrorString(int status, const char **text) {
    (void)status;
    *text = "no CUDA-capable device is detected";
    return 0;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    *version = 12080;
    return 0;
}

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int number);
int cuDeviceGet(int *device, int number) {
    *device = number;
    return 0;
}

int cuDeviceGetName(char *name, int length, int device);
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    strncpy(name, "emulated device", (size_t)length);
    return 0;
}

int cuDeviceGetPCIBusId(char *bus, int length, int device);
int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    (void)device;
    strncpy(bus, "0000:65:00.0", (size_t)length);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = NULL;
    return 0;
}

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context) {
    (void)context;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    void *memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || bytes > ROOM)
        return 2;
    *address = (uint64_t)(uintptr_t)memory;
    guard(*address, 1);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t address, const void *data, size_t bytes);
int cuMemcpyHtoD_v2(uint64_t address, const void *data, size_t bytes) {
    guard(address, 0);
    memcpy((void *)(uintptr_t)address, data, bytes);
    guard(address, 1);
    return 0;
}

int cuMemcpyDtoH_v2(void *data, uint64_t address, size_t bytes);
int cuMemcpyDtoH_v2(void *data, uint64_t address, size_t bytes) {
    guard(address, 0);
    memcpy(data, (void *)(uintptr_t)address, bytes);
    guard(address, 1);
    return 0;
}

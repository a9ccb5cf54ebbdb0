/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_aware.c - decides whether MPI gets pointers to this device's memory.
 */
#include "cuda/driver/device_own.h"
#include "cuda/driver/gpu_aware.h"

#include <stdio.h>
#include <string.h>

static const char *const mode_names[HC_GPU_AWARE_MODE_COUNT] = {
#define X(name, text) [HC_GPU_AWARE_##name] = text,
    HC_GPU_AWARE_MODES(X)
#undef X
};

int hc_gpu_aware_named(const char *name) {
    for (int i = 0; i < HC_GPU_AWARE_MODE_COUNT; i++)
        if (strcmp(name, mode_names[i]) == 0)
            return i;
    return -1;
}

void hc_device_identity(const hc_device *d, char *text, size_t room) {
    char name[128] = "?";
    int handle = 0;
    if (d->driver.device_get(&handle, d->number) == 0)
        d->driver.device_name(name, (int)sizeof name, handle);
    snprintf(text, room, "%s, CUDA %d.%d", name, d->driver.version / 1000, d->driver.version % 1000 / 10);
}

int hc__gpu_aware(const hc_gpu_aware *g, const hc_device *device, char *words, size_t room) {
    char here[160];
    hc_device_identity(device, here, sizeof here);
    if (g->mode != HC_GPU_AWARE_AUTO) {
        snprintf(words, room, "HPCCOLL_GPU_AWARE_MPI=%s", mode_names[g->mode]);
        return g->mode == HC_GPU_AWARE_YES;
    }
    for (const char *const *proof = g->proofs; proof && *proof; proof++)
        if (strcmp(*proof, here) == 0) {
            snprintf(words, room, "`hpccoll doctor --gpu-aware` has proved it for %s", here);
            return 1;
        }
    if (g->proofs && g->proofs[0])
        snprintf(words, room, "it is proved for %s, and not for %s: `hpccoll doctor --gpu-aware`", g->proofs[0], here);
    else
        snprintf(words, room, "%s", g->why ? g->why : "not tried: `hpccoll doctor --gpu-aware`");
    return 0;
}

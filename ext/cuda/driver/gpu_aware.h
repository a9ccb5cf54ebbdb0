/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_aware.h - whether MPI gets pointers to device memory: a knob and a site's proofs decide.
 *
 * A wrong guess means a crash or a wrong sum, so nothing is guessed: `hpccoll doctor --gpu-aware` tries it and records
 * the setup of the trial. Python compares the rest of the setup with this job's; this file compares the device.
 */
#pragma once

#include <stddef.h>

/*    NAME  text                                                       */
#define HC_GPU_AWARE_MODES(X)                                            \
    X(NO, "no")     /* through pinned memory */                          \
    X(AUTO, "auto") /* where it is proved, for this device and driver */ \
    X(YES, "yes")   /* the user says so */
enum hc_gpu_aware_mode {
#define X(name, text) HC_GPU_AWARE_##name,
    HC_GPU_AWARE_MODES(X)
#undef X
        HC_GPU_AWARE_MODE_COUNT
};
int hc_gpu_aware_named(const char *name); /* -1: no such name */

typedef struct hc_gpu_aware {
    int mode;                  /* the same on all ranks */
    const char *const *proofs; /* devices with a proof, as hc_device_identity() writes them; ends with NULL */
    const char *why;           /* why there are none; or NULL */
} hc_gpu_aware;

/* "NVIDIA H200, CUDA 12.8": the device of a proof. */
struct hc_device;
void hc_device_identity(const struct hc_device *, char *text, size_t room);

/* 1 or 0; `words` gets the reason, a phrase that follows "between nodes". */
int hc__gpu_aware(const hc_gpu_aware *, const struct hc_device *, char *words, size_t room);

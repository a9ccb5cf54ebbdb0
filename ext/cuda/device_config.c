/* SPDX-License-Identifier: Apache-2.0
 *
 * device_config.c - the configuration of a device data plane: the names of its modes, and how it is copied.
 */
#include "cuda/driver/device_own.h"

#include <stdlib.h>
#include <string.h>

static const char *const mode_names[HC_DEVICE_MODE_COUNT] = {
#define X(name, text) [HC_DEVICE_##name] = text,
    HC_DEVICE_MODES(X)
#undef X
};

const char *hc_device_mode_name(int mode) {
    return mode_names[mode];
}

int hc_device_mode_named(const char *name) {
    for (int i = 0; i < HC_DEVICE_MODE_COUNT; i++)
        if (strcmp(name, mode_names[i]) == 0)
            return i;
    return -1;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

static const char *copy_text(const char *text, int *failed) {
    char *copy = text ? strdup(text) : NULL;
    *failed |= text && !copy;
    return copy;
}

static const char *const *copy_texts(const char *const *texts, int *failed) {
    size_t n = 0;
    while (texts && texts[n])
        n++;
    const char **copy = calloc(n + 1, sizeof *copy);
    *failed |= !copy;
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = copy_text(texts[i], failed);
    return copy;
}

static int32_t *copy_ranks(const int32_t *ranks, int32_t n, int *failed) {
    int32_t *copy = malloc((size_t)n * sizeof *copy);
    *failed |= !copy;
    return copy ? memcpy(copy, ranks, (size_t)n * sizeof *copy) : NULL;
}

static void drop_texts(const char *const *texts) {
    for (const char *const *text = texts; text && *text; text++)
        free((void *)(uintptr_t)*text);
    free((void *)(uintptr_t)texts);
}

int hc__device_config_copy(hc_device_data_config *to, const hc_device_data_config *from) {
    int failed = 0;
    *to = *from;
    to->files.driver = copy_text(from->files.driver, &failed);
    to->files.kernels = copy_text(from->files.kernels, &failed);
    to->nccl_library = copy_text(from->nccl_library, &failed);
    to->nccl_files = copy_texts(from->nccl_files, &failed);
    to->gpu_aware.proofs = copy_texts(from->gpu_aware.proofs, &failed);
    to->gpu_aware.why = copy_text(from->gpu_aware.why, &failed);
    return failed ? HC_NO_MEMORY : HC_OK;
}

int hc__device_place_copy(hc_hierarchy_config *to, const hc_hierarchy_config *from) {
    int failed = 0;
    *to = *from;
    to->algorithm = copy_text(from->algorithm, &failed);
    to->members = copy_ranks(from->members, from->set_size, &failed);
    to->node_of = copy_ranks(from->node_of, from->set_size, &failed);
    return failed ? HC_NO_MEMORY : HC_OK;
}

static void drop(const void *const *own, size_t n) {
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)own[i]);
}

void hc__device_config_drop(hc_device_data_config *config) {
    const void *const own[] = {config->files.driver, config->files.kernels, config->nccl_library,
                               config->gpu_aware.why};
    drop(own, sizeof own / sizeof *own);
    drop_texts(config->nccl_files);
    drop_texts(config->gpu_aware.proofs);
}

void hc__device_place_drop(hc_hierarchy_config *place) {
    const void *const own[] = {place->algorithm, place->members, place->node_of};
    drop(own, sizeof own / sizeof *own);
}

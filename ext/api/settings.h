/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h - knobs from options and environment.
 */
#pragma once

#include "loop/loop.h"
#include "world/job.h"

#define HC__TEXT_KNOB 512

/* clang-format off */
#define HC_WORLD_KNOBS(X) /* rows as in HC_ENGINE_KNOBS; a test compares them with hpccoll/config.py */ \
    X(uint64_t, start_timeout, 120, 0.1, 86400, "s", HC_RANKS_MAY_DIFFER, \
      "longest time to wait for all ranks at the start") \
    X(uint64_t, stop_timeout, 60, 0, 86400, "s", HC_RANKS_MAY_DIFFER, \
      "longest time to wait for the others at the end") \
    X(uint32_t, fanout, 16, 1, 1024, "ranks", HC_RANKS_AGREE, "children of a rank in the control tree") \
    X(uint8_t, background, 1, 0, 1, "", HC_RANKS_MAY_DIFFER, "a thread drives while nobody waits") \
    X(uint32_t, verbose, 1, 0, 1, "", HC_RANKS_MAY_DIFFER, "whether rank 0 says on stderr what was chosen") \
    X(uint64_t, device_small, 65536, 0, 1099511627776, "bytes", HC_RANKS_AGREE, \
      "in device mode auto, on several nodes: allreduces and broadcasts up to this are staged; 0: none")
/*    name, default, choices ("": any; NUMBER: a number that is not negative), agreed */
#define HC_WORLD_TEXTS(X) \
    X(nodes, "", "", HC_RANKS_AGREE) \
    X(node_file, "", "", HC_RANKS_AGREE) \
    X(algorithm, "auto", "auto|direct|stages|ring", HC_RANKS_AGREE) \
    X(wire, "none", "none|fp16|bf16", HC_RANKS_AGREE) \
    X(net, "auto", "auto|mpi|ucx", HC_RANKS_AGREE) \
    X(interface, "", "", HC_RANKS_MAY_DIFFER) \
    X(ucx_library, "", "", HC_RANKS_MAY_DIFFER) \
    X(simd, "auto", "auto|avx512|avx2|portable", HC_RANKS_MAY_DIFFER) \
    X(stores, "auto", "auto|plain|stream", HC_RANKS_MAY_DIFFER) \
    X(wait, "auto", "auto|spin|yield|sleep", HC_RANKS_MAY_DIFFER) \
    X(trace_dir, "", "", HC_RANKS_MAY_DIFFER) \
    X(device, "auto", "auto|local|none|NUMBER", HC_RANKS_MAY_DIFFER) \
    X(device_mode, "auto", "auto|staged|nccl|nccl_flat|mpi", HC_RANKS_AGREE) \
    X(gpu_aware_mpi, "auto", "auto|yes|no", HC_RANKS_AGREE) \
    X(cuda_library, "", "", HC_RANKS_MAY_DIFFER) \
    X(nccl_library, "", "", HC_RANKS_MAY_DIFFER)
/* clang-format on */

#define HC__TEXT_FIELD(name, ...) char name[HC__TEXT_KNOB];

#define HC__IGNORED_BYTES 512

typedef struct hc__settings {
    hc_engine_config engine;
    hc_loop_config loop; /* its knobs, and what the start has found; `engine` in it is not used */
    hc_hierarchy_config hierarchy;
    HC_WORLD_KNOBS(HC_KNOB_FIELD)
    HC_WORLD_TEXTS(HC__TEXT_FIELD)
    char ignored[HC__IGNORED_BYTES]; /* variables of the environment without effect in C: "HPCCOLL_X, HPCCOLL_Y" */
} hc__settings;

#define HC__AGREED_BYTES 2048 /* text of the knobs that must be equal on all ranks */

/* A variable of a scheduler, or NULL. */
const char *hc__settings_variable(const char *name);
/* Reads the environment and `options` (or NULL). OK, or INVALID (error set). */
int hc__settings_read(hc__settings *, const char *options);
/* Writes the knobs that must be equal on all ranks: "rails=0 fanout=16 ...". */
void hc__settings_agreed(const hc__settings *, char text[HC__AGREED_BYTES]);
/* Finds the first knob that differs between two such texts, and copies its word from each. 0: all are equal. */
int hc__settings_differ(const char *a, const char *b, char word_a[128], char word_b[128]);

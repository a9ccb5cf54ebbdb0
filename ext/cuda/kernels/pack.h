/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h - the fusion buffer of a device: many tensors into it with cast and scale, and back, in one launch each.
 */
#pragma once

#include "cuda/driver/module.h"
#include "cuda/kernels/pack_job.h"

typedef struct hc_pack_tensor {
    hc_gpu_address address; /* of its first element; 0: it keeps its place in the buffer and is not moved */
    int64_t count;          /* elements */
} hc_pack_tensor;

/* ---- the plan: plain arithmetic, no driver [any thread] ------------------------------------------- */

/* The kernel for a pair of types, and its unit of counting. */
typedef struct hc_pack_kind {
    int kernel;
    int parts;         /* per element: 2 for complex numbers, which are pairs of floats */
    size_t part_bytes; /* of a part in the buffer */
} hc_pack_kind;
#define HC_PACK_KERNELS 20
const char *hc_pack_kernel_name(int kernel); /* "hc_pack_f32_f16" */

/* Chooses for tensors of type `tensor` and a buffer of type `buffer`; unpack reverses the direction. UNSUPPORTED: a
 * cast of anything but floats, scaling of integers, a divisor where the width changes. */
int hc_pack_choose(int tensor, int buffer, double scale, double divisor, int unpack, hc_pack_kind *);

/* Fills `entries` (room for n) with the tensors to move. They lie one after another in the buffer, each at a multiple
 * of 16 bytes; the layout depends on the counts alone, so it is the same on all ranks. Sets *chunks and *bytes (of the
 * buffer). Returns the number of entries, or INVALID for a negative count or more than 64 GiB. */
int hc_pack_plan(const hc_pack_tensor *, int n, const hc_pack_kind *, hc_pack_entry *entries, unsigned *chunks,
                 int64_t *bytes);

/* ---- the launch [driver's thread, context current] --------------------------------------------------- */

#define HC_PACK_TABLES 2
typedef struct hc_packer {
    hc_module module;        /* must be first; has the text of the last failure */
    struct {                 /* for entries that exceed a kernel's arguments; used in turn */
        hc_pack_entry *host; /* pinned */
        hc_gpu_address device;
        int room;
        hc_gpu_event used; /* the last launch that reads it */
    } table[HC_PACK_TABLES];
    int next;
    hc_pack_entry *entries;
    int room;
} hc_packer;

/* Loads the kernels from folder/pack.ptx; TRANSPORT with text where the driver refuses. It zeroes the struct. */
int hc_packer_open(hc_packer *, const hc_driver *, const char *folder);
void hc_packer_close(hc_packer *); /* all launches must be done */

typedef struct hc_pack_order {
    const hc_pack_tensor *tensors;
    int n;
    int tensor, buffer; /* types: enum hc_dtype */
    int unpack;
    double scale, divisor; /* tensors are multiplied, and then divided */
    hc_gpu_address at;     /* the buffer; a multiple of 16 */
} hc_pack_order;
/* One launch in `stream`: OK, also if there is nothing to do; HC_PACK_BUSY: both tables are in use, try again; else a
 * status with text. */
enum { HC_PACK_BUSY = 1 };
int hc_pack_launch(hc_packer *, const hc_pack_order *, hc_gpu_stream stream);

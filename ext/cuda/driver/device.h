/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - a GPU as this process uses it, and the data plane of a process set whose tensors may lie on one.
 *
 *     World   opens the device of the first tensor that a caller brings (hc_device_open), keeps it, and puts it where
 *             the data planes of its sets look (hc_device_data_config.device). A World has one device on each rank:
 *             a tensor on another one is refused before it is submitted.
 *     data    hc_device_data_new() makes a set's data plane for batches on the device, beside the one for host memory.
 *             Its first batch opens what it needs: streams, staging memory, communicators.
 *
 * Nothing here blocks or synchronises the device, but for what is said at hc_device_close().
 */
#ifndef HC_DEVICE_H
#define HC_DEVICE_H

#include "transport/transport.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/gpu_aware.h"

/* ---- the device: one per process and number, shared by all who open it -------------------------------- */

#define HC_DEVICE_CURRENT (-1) /* that of the calling thread's current context; 0 where it has none */
#define HC_DEVICE_WHY 6144     /* room for why something could not be opened, and what to do about it */

typedef struct hc_device {
    hc_driver driver;
    int number;             /* as this process counts */
    char pci[32];           /* "0000:4a:00.0" */
    hc_gpu_context context; /* the primary one, which frameworks use as well */
} hc_device;

/* What a device is opened with. */
typedef struct hc_device_files {
    const char *driver;  /* the knob's value, or NULL */
    const char *kernels; /* the folder of their texts, pack.ptx and sum.ptx */
} hc_device_files;

/* Opens the driver, then the device. OK, or UNSUPPORTED with `why` (HC_DEVICE_WHY bytes): what is wrong, and in
 * brackets what to do. [any thread] */
int hc_device_open(int number, const hc_device_files *, hc_device **, char *why);
/* The same for the device that an address lies on. INVALID: it lies on none. */
int hc_device_open_at(const void *address, const hc_device_files *, hc_device **, char *why);
/* Behind the data planes that use it. The last close frees its memory, which waits for the device. NULL: nothing. [any
 * thread] */
void hc_device_close(hc_device *);

/* The number of the device that an address lies on, or a negative number where it is not a device's. [any thread] */
int hc_device_of(const hc_device *, const void *address);

/* Makes the device's context the thread's current one; leave() makes it what it was. Around every call of the driver
 * in a thread that may have another. [any thread] */
hc_gpu_context hc_device_enter(const hc_device *);
void hc_device_leave(const hc_device *, hc_gpu_context before);

/* Memory for a result that no data plane allocates: OK or NO_MEMORY; it goes back like theirs. [any thread] */
int hc_device_result_new(hc_device *, size_t bytes, void **result);
/* A result that a data plane allocated (hc_piece: out NULL; out_owned is set) goes back. What was launched in `stream`
 * before may still use it. [any thread] */
void hc_device_result_free(hc_device *, void *result, hc_gpu_stream stream);

/* How a batch on the device runs where NCCL is used; docs/gpu.md is drawn from this. */
enum hc_device_path { HC_PATH_UNDEFINED, HC_PATH_STAGED, HC_PATH_NCCL };
enum hc_device_path hc_device_path(int operation, int reduction, int dtype);

/* ---- the data plane ---------------------------------------------------------------------------------- */

/*      NAME     text                                                                                      */
#define HC_DEVICE_MODES(X)                                                                              \
    X(AUTO, "auto")           /* for each batch what suits it, by what all ranks know */                \
    X(STAGED, "staged")       /* through the host: every operation, every type, no NCCL */              \
    X(NCCL, "nccl")           /* NCCL in the node, the net between nodes; staged where NCCL lacks it */ \
    X(NCCL_FLAT, "nccl_flat") /* NCCL over all ranks; staged where NCCL lacks it */                     \
    X(MPI, "mpi")             /* the net over all ranks, no NCCL; staged where no kernel adds it up */
enum hc_device_mode {
#define X(name, text) HC_DEVICE_##name,
    HC_DEVICE_MODES(X)
#undef X
        HC_DEVICE_MODE_COUNT
};
const char *hc_device_mode_name(int mode);
int hc_device_mode_named(const char *name); /* -1: no such name */

/* The order in which the sets of a World call NCCL on this rank (launch_order.h). Zeroed by the World; the data planes'
 * from then on. */
typedef struct hc_launch_order {
    struct hc__launch_slot *first;
    uint64_t clock;
    hc_gpu_event launched; /* behind the last calls; NULL: none, or not known any more */
} hc_launch_order;

typedef struct hc_device_data_config {
    hc_launch_order *order; /* lives longer; NULL: no other set uses this rank's device */
    hc_device *const
        *device; /* where the World keeps its device; set before the first request on it. NULL in there: this
                                  rank has joined before it brought a tensor; then `number` is opened */
    int number;  /* HC_DEVICE_CURRENT, or the World's knob */
    hc_device_files files;
    const char *nccl_library;      /* the knob's value, or NULL */
    const char *const *nccl_files; /* where Python's packages may have it, ends with NULL */
    int mode;                      /* enum hc_device_mode; the same on all ranks */
    hc_gpu_aware gpu_aware;        /* copied */
    /* In mode AUTO, on several nodes; bytes, the same on all ranks. */
    int64_t small;         /* batches up to this are staged */
    int64_t flat;          /* batches from this on go over NCCL between all ranks; 0: none */
    uint8_t shares_device; /* two ranks may be on one GPU: for tests, with the settings that NCCL then needs */
    uint64_t patience;     /* ns until what does not come is given up: communicators, collectives; 0: never */
} hc_device_data_config;

/* Copies all that it is told. A batch has device addresses in its pieces, and `ready` and `finished` (transport.h). */
int hc_device_data_new(const hc_device_data_config *, const hc_plane_parts *, hc_data **);
/* What batches on the device run on here, and why, as one line for the log; "" before the first. [driver] */
const char *hc_device_data_facts(const hc_data *);
/* How many of them went each way: HC_PATH_STAGED, HC_PATH_NCCL (or what stands for it). [driver] */
uint64_t hc_device_data_count(const hc_data *, enum hc_device_path);

#endif

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
 * Nothing here blocks or synchronises the device, except hc_device_close().
 */
#pragma once

#include "transport/transport.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/gpu_aware.h"

/* ---- the device: one per process and number, with a count of its users -------------------------------- */

#define HC_DEVICE_CURRENT (-1) /* the device of the calling thread's current context; 0 where it has none */
#define HC_DEVICE_WHY 6144     /* bytes for the reason of a failure and its remedy */

typedef struct hc_device {
    hc_driver driver;
    int number;             /* this process's numbering */
    char pci[32];           /* "0000:4a:00.0" */
    hc_gpu_context context; /* the primary one, which frameworks use as well */
} hc_device;

/* The files that opening a device needs. */
typedef struct hc_device_files {
    const char *driver;  /* the knob's value, or NULL */
    const char *kernels; /* the folder with pack.ptx and sum.ptx */
} hc_device_files;

/* Opens the driver, then the device. OK, or UNSUPPORTED with `why` (HC_DEVICE_WHY bytes): the failure, and in brackets
 * the remedy. [any thread] */
int hc_device_open(int number, const hc_device_files *, hc_device **, char *why);
/* The same for the device that an address lies on. INVALID: it lies on none. */
int hc_device_open_at(const void *address, const hc_device_files *, hc_device **, char *why);
/* Call it after the data planes that use the device are destroyed. The last close frees the memory, which waits for the
 * device. NULL is allowed. [any thread] */
void hc_device_close(hc_device *);

/* The number of the device that an address lies on, or a negative number for host memory. [any thread] */
int hc_device_of(const hc_device *, const void *address);

/* Makes the device's context current in this thread; leave() restores the earlier one. Every call of the driver needs
 * this, as the thread may have another context. [any thread] */
hc_gpu_context hc_device_enter(const hc_device *);
void hc_device_leave(const hc_device *, hc_gpu_context before);

/* Allocates memory for a result that no data plane allocates: OK or NO_MEMORY. Free it with hc_device_result_free().
 * [any thread] */
int hc_device_result_new(hc_device *, size_t bytes, void **result);
/* Frees a result that a data plane allocated (hc_piece: out NULL; out_owned is set). Work that was launched in `stream`
 * before this call may still use it. [any thread] */
void hc_device_result_free(hc_device *, void *result, hc_gpu_stream stream);

/* Events of requests, which only order work. take() gives one of those that were given back, or a new one. All return
 * the driver's status. [any thread] */
int hc_device_event_take(hc_device *, hc_gpu_event *);
void hc_device_event_give(hc_device *, hc_gpu_event); /* NULL is allowed */
int hc_device_event_record(const hc_device *, hc_gpu_event, hc_gpu_stream);
int hc_device_event_follow(const hc_device *, hc_gpu_stream, hc_gpu_event); /* later work in the stream waits for it */
int hc_device_event_query(const hc_device *, hc_gpu_event);                 /* 0, HC_DRIVER_NOT_READY, or a failure */

/* How a batch on the device runs where NCCL is used. The table in docs/gpu.md is made from this. */
enum hc_device_path { HC_PATH_UNDEFINED, HC_PATH_STAGED, HC_PATH_NCCL };
enum hc_device_path hc_device_path(int operation, int reduction, int dtype);

/* ---- the data plane ---------------------------------------------------------------------------------- */

/*      NAME     text                                                                                      */
#define HC_DEVICE_MODES(X)                                                                                  \
    X(AUTO, "auto")           /* chosen for each batch from what all ranks know */                          \
    X(STAGED, "staged")       /* through the host: every operation, every type, no NCCL */                  \
    X(NCCL, "nccl")           /* NCCL inside the node, the net between nodes; staged where NCCL lacks it */ \
    X(NCCL_FLAT, "nccl_flat") /* NCCL over all ranks; staged where NCCL lacks it */                         \
    X(MPI, "mpi")             /* the net over all ranks, no NCCL; staged where no kernel adds */
enum hc_device_mode {
#define X(name, text) HC_DEVICE_##name,
    HC_DEVICE_MODES(X)
#undef X
        HC_DEVICE_MODE_COUNT
};
const char *hc_device_mode_name(int mode);
int hc_device_mode_named(const char *name); /* -1: no such name */

/* The order in which the sets of a World call NCCL on this rank (launch_order.h). The World zeroes it; then only the
 * data planes change it. */
typedef struct hc_launch_order {
    struct hc__launch_slot *first;
    uint64_t clock;
    hc_gpu_event launched; /* after the last calls; NULL: none, or no longer known */
} hc_launch_order;

typedef struct hc_device_data_config {
    hc_launch_order *order; /* outlives the data plane; NULL: no other set uses this rank's device */
    hc_device *const
        *device; /* where the World keeps its device; set before the first request on it. *device NULL: this rank
                                  joined before it had a tensor on a device; then `number` is opened */
    int number;  /* HC_DEVICE_CURRENT, or the World's knob */
    hc_device_files files;
    const char *nccl_library;      /* the knob's value, or NULL */
    const char *const *nccl_files; /* paths in Python packages, ends with NULL */
    int mode;                      /* enum hc_device_mode; the same on all ranks */
    hc_gpu_aware gpu_aware;        /* copied */
    int64_t small;         /* mode AUTO stages batches up to these bytes on several nodes; the same on all ranks */
    uint8_t shares_device; /* two ranks may use one GPU: for tests, with the settings that NCCL then needs */
    uint64_t patience;     /* ns without progress until a communicator or collective fails; 0: never */
} hc_device_data_config;

/* Copies the configuration. A batch has device addresses in its pieces, and `ready` and `finished` (transport.h). */
int hc_device_data_new(const hc_device_data_config *, const hc_plane_parts *, hc_data **);
/* One line for the log: what runs batches on this device, and why; "" before the first batch. [driver] */
const char *hc_device_data_facts(const hc_data *);
/* The number of batches per path: HC_PATH_STAGED, or HC_PATH_NCCL for all others. [driver] */
uint64_t hc_device_data_count(const hc_data *, enum hc_device_path);

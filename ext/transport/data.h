/* SPDX-License-Identifier: Apache-2.0
 *
 * data.h - the contract of a data plane: runs the batches of one process set, for one kind of memory.
 */
#pragma once

#include "transport/batch.h"
#include "transport/progress.h"

/* A point-to-point message of an array in device memory; the data plane provides its staging buffer in host memory. */
typedef struct hc_staging {
    void *device, *host;
    uint64_t bytes;         /* not 0 */
    void *ready, *finished; /* as in hc_batch */
    void *own;              /* for the data plane, while the buffer is open */
} hc_staging;

/* A set has a data plane for each kind of memory. Together they run one batch at a time, in log order. The batch and
 * all it points to stay valid until test gives HC_DONE or an error. Sets share no finite resource (rule B3 of
 * docs/control-plane.md). */
typedef struct hc_data hc_data;
struct hc_data {
    const struct hc_data_ops *ops;
    const char *text;      /* the text of the last failure, or NULL */
    uint8_t needs_polling; /* set while a batch waits for a device, which rings no doorbell: the driver must poll */
};
struct hc_data_ops {
    const char *name;
    int (*start)(hc_data *, hc_batch *);
    /* enum hc_progress, or a status. RESULT_SIZE: the batch has ended, but the `out` of a result here has the wrong
     * size. Any other status breaks the World. */
    int (*test)(hc_data *);
    void (*abandon)(hc_data *); /* after a failure: cancel, and leave the caller's memory alone */
    void (*free)(hc_data *);
    /* NULL, or called now and then after batches have ended, to check their launched work: OK, or a status that breaks
     * the World. */
    int (*watch)(hc_data *);
    /* NULL where there is no device. Any number of staging buffers, beside batches. open allocates one and, for a send,
     * starts the copy from the device; test gives HC_DONE when that copy has ended. deliver launches the copy of a
     * received message to the device. close is always called at the end. A status breaks the World. */
    int (*staging_open)(hc_data *, hc_staging *, int sends);
    int (*staging_test)(hc_data *, hc_staging *);
    int (*staging_deliver)(hc_data *, hc_staging *);
    void (*staging_close)(hc_data *, hc_staging *);
};

/* Makes a set's data planes for device memory, each when its first batch or message comes. */
typedef struct hc_plane_maker hc_plane_maker;
struct hc_plane_maker {
    /* OK, or a status with `text` (HC_PLANE_TEXT bytes), which breaks the World. [driver] */
    int (*make)(hc_plane_maker *, int memory, hc_data **, char *text);
    void (*free)(hc_plane_maker *); /* after all planes of the set */
};
#define HC_PLANE_TEXT 256

/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_buffers.h - letters from and to a device by way of pinned memory: private to parcels.c and device_data.c.
 */
#ifndef HC_PARCELS_H
#define HC_PARCELS_H

#include "cuda/driver/device_own.h"

/* Pinned memory, and how far the copy between it and the device is. */
typedef struct hc__ride {
    struct hc__ride *next;
    void *memory;
    hc_gpu_event over;
} hc__ride;

typedef struct hc__parcels {
    hc_device *device; /* NULL before the first */
    hc_gpu_stream down, up;
    hc__ride *leaving; /* given back, with copies that may go on */
    hc__ride *spare;   /* without memory */
    char text[256];
} hc__parcels;

/* As of hc_data_ops (transport.h), on a device that is entered. */
int hc__parcel_open(hc__parcels *, hc_device *, hc_parcel *, int sends);
int hc__parcel_test(hc__parcels *, const hc_parcel *);
int hc__parcel_deliver(hc__parcels *, const hc_parcel *);
void hc__parcel_close(hc__parcels *, hc_parcel *);
void hc__parcels_free(
    hc__parcels *); /* waits a little for what is under way; what is then still in use is lost */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.h - arrays in device memory: which address lies there, and the order of a request's work on the device.
 *
 * The program has made its arrays ready before a call. After a wait their values are complete for all streams.
 */
#pragma once

#include "api/base.h"
#include "api/calls.h"

/* ---- the start and the end of a World --------------------------------------------------------------------------- */

/* Opens the CUDA driver if this process has it, or if a knob asks for a device: OK, or a status (error set). */
int hc__devices_find(hc__base *);
/* In a World of Python, whose devices are in another library: finds the driver, so that calls refuse their memory. */
void hc__devices_of_python(hc__base *);
/* Opens the device that a knob names: OK; or a status, and `why`. `place`: this rank's, among those of its machine. */
int hc__devices_open(hc__base *, int32_t place, char why[HC_WHY]);
void hc__devices_describe(const hc__base *, char *text, size_t room); /* for the line at the start */
void hc__devices_close(hc__base *);                                   /* after the loop was freed */
void hc__devices_forked(hc__base *); /* in the child of a fork(): the driver and the device are the parent's */

/* ---- calls: only where base->devices.on ------------------------------------------------------------------------- */

/* Sets in which memory each array lies, and refuses what cannot be one call: OK, or a status (error set). */
int hc__devices_place(const hc__call *, const hpccoll_world *, hc__read *);
/* The same for one array; `name`: in an error. */
int hc__devices_place_one(const hpccoll_world *, const void *data, const char *name, int *memory);

/* ---- requests on a device ---------------------------------------------------------------------------------------- */

/* Gives a handle what its work on the device is waited for by: OK, or a status (error set). */
int hc__devices_order(const hpccoll_world *, hc_handle *);
/* hc__await() of such a handle: also for its work on the device. */
int hc__devices_await(const hpccoll_world *, hc_handle *, uint64_t ns);
/* Ends such a handle, whose status on the host is `status`: the status (error set). */
int hc__devices_end(const hpccoll_world *, hc_handle *, int status);

/* A result that the library has allocated, for the program: OK or NO_MEMORY (error set). */
int hc__devices_give(const hpccoll_world *, void *data);
int hc__devices_take_back(void *data); /* 1: it was such a result, and is freed */

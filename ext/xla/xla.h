/* SPDX-License-Identifier: Apache-2.0
 *
 * xla.h - the handler of XLA's custom calls.
 */
#ifndef HC_XLA_H
#define HC_XLA_H

#include "gate/gate.h"
#include "xla/ffi.h"

/* The names of the two custom calls, in programs and in XLA's registry. */
#define HC_XLA_CALL "hpccoll"
#define HC_XLA_NOTHING "hpccoll.nothing"

#define HC_XLA_SENDRECV 253 /* beside the operations of the gate: a send and a receive */

/* The gate's table. HC_OK, or UNSUPPORTED: it has another version. Before the first call. */
int hc_xla_connect(const hc_gate *);

/* A custom call of XLA. Its attributes: name (string); operation, reduction, wire, group, root, set, tag (int64);
 * prescale, postscale (float64); splits (array of int64); of a sendrecv, whose root is where it sends to, also source
 * and source_tag; and `empty`, `calls`, `trailing`, `tells`, `follows` and `back` (of a sendrecv that follows one the
 * other way), for which see xla.c and the gate. Its buffers are in the order of the tensors, its tokens anywhere. */
void *hc_xla_call(hc_ffi_frame *);
void *hc_xla_nothing(hc_ffi_frame *); /* a custom call that does nothing */

/* Registers both for the CPU with the XLA that is in a library of this process, as JAX does with its own: `table` is
 * the name of the function that returns XLA's table of functions. "": it did; else why not. */
const char *hc_xla_register(const char *library, const char *table);

#endif

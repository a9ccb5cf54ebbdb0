/* SPDX-License-Identifier: Apache-2.0
 *
 * xla.h - the handler of XLA's custom calls.
 */
#pragma once

#include "gate/gate.h"
#include "xla/ffi.h"

/* The names of the two custom calls, in programs and in XLA's registry. */
#define HC_XLA_CALL "hpccoll"
#define HC_XLA_NOTHING "hpccoll.nothing"

#define HC_XLA_SENDRECV 253 /* an operation that the gate does not have: a send and a receive */

/* Sets the gate's table; call it before the first custom call. HC_OK, or UNSUPPORTED: it has another version. */
int hc_xla_connect(const hc_gate *);

/* A custom call of XLA. Its attributes: name (string); operation, reduction, wire, group, root, set, tag (int64);
 * rank and size, if the program has these numbers of the set in it; prescale, postscale (float64); splits (array of
 * int64); for a sendrecv, whose root is the destination, also source and source_tag; and `empty`, `calls`, `trailing`,
 * `tells`, `follows` and `back` (for a sendrecv that follows one in the opposite direction), see xla.c and the gate.
 * The buffers are in the order of the tensors, tokens anywhere. */
void *hc_xla_call(hc_ffi_frame *);
void *hc_xla_nothing(hc_ffi_frame *); /* a custom call that does nothing */

/* Registers both custom calls for the CPU with the XLA in a library of this process, as JAX does with its XLA: `table`
 * is the name of the function that returns XLA's table of functions. Returns "", or the text of an error. */
const char *hc_xla_register(const char *library, const char *table);

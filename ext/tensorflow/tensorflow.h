/* SPDX-License-Identifier: Apache-2.0
 *
 * tensorflow.h - our operations and kernels for TensorFlow.
 */
#pragma once

#include "gate/gate.h"
#include "tensorflow/capi.h"

#define HC_TF_GUARD 254 /* an operation that the gate does not have: see kernels.c */

#define HC_TF_SCOPE "hpccoll" /* scope of hpccoll/tensorflow/graph.py's nodes: see write_callers() */

/* The library registers them when it is loaded, as TensorFlow expects. Returns "", or the text of an error. */
const char *hc_tensorflow_problem(void);
/* Sets the gate's table; call it before the first operation. HC_OK, or UNSUPPORTED: it has another version. */
int hc_tensorflow_connect(const hc_gate *);

/* Memory for results, with TensorFlow's alignment; NULL: no memory. The caller returns it with hc_tf_memory_give(). */
void *hc_tf_memory_take(size_t bytes);
void hc_tf_memory_give(void *);
/* Idle blocks for later results, at most 256 MiB: frees them; returns their bytes. */
void hc_tf_memory_free_idle(void);
size_t hc_tf_memory_idle(void);

/* Looks up the C interface, and registers our operations with these kernels. Returns "", or the text of an error. */
const char *hc__tf_register(hc_tf_create *, hc_tf_compute *, hc_tf_delete *);

#define X(result, name, arguments) extern result(*hc__##name) arguments;
HC_TF_FUNCTIONS(X)
#undef X

/* SPDX-License-Identifier: Apache-2.0
 *
 * tensorflow.h - TensorFlow's operations and kernels of ours.
 */
#ifndef HC_TENSORFLOW_H
#define HC_TENSORFLOW_H

#include "gate/gate.h"
#include "tensorflow/capi.h"

#define HC_TF_GUARD 254 /* beside the operations of the gate: see register.c */

#define HC_TF_SCOPE "hpccoll" /* where hpccoll/tensorflow/graph.py puts them: see write_callers() */

/* They register themselves when this library is loaded, as TensorFlow expects. "": they did; else why not. */
const char *hc_tensorflow_problem(void);
/* The gate's table. HC_OK, or UNSUPPORTED: it has another version. Before the first call. */
int hc_tensorflow_connect(const hc_gate *);

/* Memory for results, aligned as TensorFlow's own; NULL: there is none. It lives until it is given back. */
void *hc_tf_memory_take(size_t bytes);
void hc_tf_memory_give(void *);
/* Frees what is kept for the next result, at most 256 MiB; how much that is. */
void hc_tf_memory_free_idle(void);
size_t hc_tf_memory_idle(void);

/* Looks the C interface up, and registers our operations with these kernels. "": it did; else why not. */
const char *hc__tf_register(hc_tf_create *, hc_tf_compute *, hc_tf_delete *);

#define X(result, name, arguments) extern result(*hc__##name) arguments;
HC_TF_FUNCTIONS(X)
#undef X

#endif

# SPDX-License-Identifier: Apache-2.0
"""_tensorflow.pyx - operations and kernels of TensorFlow, which register themselves when TensorFlow loads this file.

It is linked with nothing of TensorFlow or of _core.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer

from hpccoll import _core, errors


cdef extern from "tensorflow/tensorflow.h":
    ctypedef struct hc_gate:
        pass
    const char *HC_GATE_CAPSULE
    int hc_tensorflow_connect(const hc_gate *)
    const char *hc_tensorflow_problem()


cdef int connect() except -1:
    if hc_tensorflow_connect(<const hc_gate *>PyCapsule_GetPointer(_core.gate, HC_GATE_CAPSULE)) < 0:
        raise errors.UnsupportedError(
            "hpccoll._tensorflow and hpccoll._core were built from different versions: build anew"
        )
    return 0


connect()
problem = hc_tensorflow_problem().decode()

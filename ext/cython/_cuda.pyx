# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""_cuda.pyx - GPUs: their driver and NCCL, the order between streams, and data planes for batches in device memory.

A separate extension: a job without arrays in device memory never loads it. For the first such array, `_core` gets the
Accelerator from hpccoll.device_arrays.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

import os
import time
from collections import deque

from hpccoll import _core, errors

from cuda cimport *
from hc cimport *

KERNELS = os.path.join(os.path.dirname(__file__), "_kernels")
"""The folder of the kernels' texts, which the driver compiles for its GPU."""
MODES = tuple([hc_device_mode_name(i).decode() for i in range(HC_DEVICE_MODE_COUNT)])
"""The choices of HPCCOLL_DEVICE_MODE."""

include "cuda.pxi"
include "dlpack.pxi"
include "device.pxi"
include "accelerator.pxi"

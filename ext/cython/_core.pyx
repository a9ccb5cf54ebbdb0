# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""_core.pyx - between Python and C: Python arguments to requests, handles to results, statuses to exceptions.

It translates and decides nothing. Whatever may take time runs without the GIL.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from cpython.number cimport PyIndex_Check
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.math cimport isnan
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strcmp, strdup, strncpy

import atexit
import faulthandler
import math
import operator
import os
import platform
import signal
import sys
import time
import weakref
from types import GenericAlias

import numpy as np

from hpccoll import arrays, errors
from hpccoll.lost_errors import warn_of_lost_error
from hpccoll.reductions import Reduction, reduction_of as reduction_given
from hpccoll.text import call_site, say

from gate cimport *
from hc cimport *
from set_agreement cimport *

include "tables.pxi"
include "choose.pxi"
include "knobs.pxi"
include "devices.pxi"
include "operands.pxi"
include "interrupts.pxi"
include "handles.pxi"
include "exchange.pxi"
include "traces.pxi"
include "segments.pxi"
include "loops.pxi"
include "node_order.pxi"
include "laps.pxi"
include "arguments.pxi"
include "calls.pxi"
include "shortcut.pxi"
include "messages.pxi"
include "user_reductions.pxi"
include "sets.pxi"
include "changes.pxi"
include "refusals.pxi"
include "plans.pxi"
include "halos.pxi"
include "plan_agreement.pxi"
include "set_agreement.pxi"
include "shared_segments.pxi"
include "jobs.pxi"
include "group_plans.pxi"
include "several_plans.pxi"
include "lent.pxi"
include "notice.pxi"
include "pmix.pxi"
include "checksums.pxi"

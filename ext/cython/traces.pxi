# SPDX-License-Identifier: Apache-2.0
#
# traces.pxi - the stacks that SIGUSR2 adds to a trace, and the form of its files.

cdef bint has_stacks = False


cdef int trace_stacks() except -1:
    """Let SIGUSR2 add the stack of the interrupted thread to the trace, by Python's handler; once per process.

    It omits the other threads: they run meanwhile, and reading a frame that a thread has just left is a segmentation
    fault. The handlers are not chained: chained handlers nest at fast signals, until the signal stack overflows.
    """
    global has_stacks
    if has_stacks:
        return 0
    has_stacks = True
    fd = os.memfd_create("hpccoll-stacks", os.MFD_CLOEXEC)
    faulthandler.register(signal.SIGUSR2, file=fd, all_threads=False)
    hc_trace_stacks(fd)
    atexit.register(no_trace_stacks)
    return 0


def no_trace_stacks():
    """Leave Python's handler out: it ends with the interpreter, and a signal may come later, as in MPI_Finalize."""
    hc_trace_no_stacks()  # no call of Python's handler from here on
    faulthandler.unregister(signal.SIGUSR2)
    hc_trace_no_stacks()  # ours again


TRACE_KINDS = ("enqueue", "send", "receive", "fuse", "start", "end", "complete", "wait", "break")
TRACE_MAGIC, TRACE_VERSION, TRACE_MEMFD = HC_TRACE_MAGIC, HC_TRACE_VERSION, HC_TRACE_MEMFD.decode()
TRACE_KEPT, TRACE_SITE = HC_TRACE_KEPT, HC_TRACE_SITE  # records, bytes

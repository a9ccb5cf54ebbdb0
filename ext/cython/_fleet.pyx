# SPDX-License-Identifier: Apache-2.0
"""_fleet.pyx - for `hpccoll bench`: many virtual ranks of the real engine in one process, and the distance of cores."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from hpccoll import errors


cdef extern from "core/hc.h" nogil:
    enum: HC_FLOAT32, HC_MAX_DIMS
    ctypedef struct hc_tensor:
        uint8_t dtype, ndim
        const int64_t *dims

cdef extern from "fleet/resnet50.h" nogil:
    enum: RESNET50_GRADIENTS
    ctypedef struct fleet_request:
        const char *name
        uint32_t ntensors
        const hc_tensor *tensors
    ctypedef struct resnet50_model "resnet50":
        char names[161][48]
        int64_t dims[161][4]
        hc_tensor tensors[161]
    int64_t resnet50_gradients(resnet50_model *)
    ctypedef struct fleet:
        int ranks
        const char *problem
    ctypedef struct fleet_cost:
        uint64_t messages, bytes, memory_mean, memory_max
        uint32_t chain, messages_max
        uint64_t bytes_max
        double cpu_mean, cpu_max
        uint32_t batches, entries
    enum fleet_arrival:
        FLEET_IN_ORDER, FLEET_DIFFERING, FLEET_ONE_LATE
    int fleet_open(fleet *, int, int, int, const fleet_request *, int)
    void fleet_close(fleet *)
    int fleet_step(fleet *, fleet_arrival, fleet_cost *)

cdef extern from "fleet/line.h" nogil:
    ctypedef struct fleet_line:
        pass
    double fleet_line_bounce(fleet_line *, uint32_t, int)
    int fleet_processor()

ARRIVALS = {"in order": FLEET_IN_ORDER, "differing": FLEET_DIFFERING, "one late": FLEET_ONE_LATE}


LINE_BYTES = sizeof(fleet_line)


def bounce(shared, int place, uint32_t turn, bint first):
    """The seconds of a line of `shared` from this process to another one that calls this with the same turn.

    In the second process it is 1 after a measurement; 0: the other one did not come.
    """
    cdef Py_buffer memory
    cdef double seconds
    PyObject_GetBuffer(shared, &memory, PyBUF_WRITABLE)
    try:
        if place < 0 or (place + 1) * sizeof(fleet_line) > <size_t>memory.len:
            raise IndexError(f"line {place} of {memory.len} bytes")
        with nogil:
            seconds = fleet_line_bounce(<fleet_line *>memory.buf + place, turn, first)
    finally:
        PyBuffer_Release(&memory)
    return seconds


def processor():
    """The processor on which this thread runs."""
    return fleet_processor()


def resnet50():
    """The name and the dimensions of each gradient of ResNet-50, in the order of the forward pass."""
    cdef resnet50_model model
    resnet50_gradients(&model)
    return [(model.names[i].decode(), tuple(model.dims[i][d] for d in range(model.tensors[i].ndim)))
            for i in range(RESNET50_GRADIENTS)]


cdef class Fleet:
    """The engines of all ranks of a new World."""
    cdef fleet c
    cdef fleet_request *requests
    cdef hc_tensor *tensors
    cdef int64_t *dims
    cdef list names

    def __init__(self, int nodes, int per_node, int fanout, object requests):
        """
        :param requests: the requests of each rank in a step: a name, and the dimensions of each tensor in it (several
            tensors: a group)
        :raises OutOfMemoryError: there is not enough memory
        """
        cdef int i = 0, tensor = 0
        total = sum(len(tensors) for _, tensors in requests)
        if nodes < 1 or per_node < 1 or fanout < 1 or not requests or fanout > 100:
            raise errors.InvalidArgumentError(f"{nodes} nodes, {per_node} ranks on each, fanout {fanout}")
        self.requests = <fleet_request *>calloc(len(requests), sizeof(fleet_request))
        self.tensors = <hc_tensor *>calloc(total, sizeof(hc_tensor))
        self.dims = <int64_t *>calloc(total * HC_MAX_DIMS, sizeof(int64_t))
        if self.requests is NULL or self.tensors is NULL or self.dims is NULL:
            raise MemoryError
        self.names = [name.encode() for name, _ in requests]
        for _, tensors in requests:
            self.requests[i].name = <const char *>self.names[i]
            self.requests[i].ntensors = <uint32_t>len(tensors)
            self.requests[i].tensors = self.tensors + tensor
            i += 1
            for shape in tensors:
                self.tensors[tensor].dtype = HC_FLOAT32
                self.tensors[tensor].ndim = <uint8_t>len(shape)
                self.tensors[tensor].dims = self.dims + tensor * HC_MAX_DIMS
                for d, n in enumerate(shape):
                    self.dims[tensor * HC_MAX_DIMS + d] = n
                tensor += 1
        cdef int status
        with nogil:
            status = fleet_open(&self.c, nodes, per_node, fanout, self.requests, i)
        self.check(status)

    def step(self, str arrival):
        """Run a step in which all ranks raise all requests.

        :param arrival: one of ARRIVALS
        :returns: counts of messages and bytes, seconds of the engine per rank, bytes of memory; see fleet.h
        """
        cdef fleet_cost cost
        cdef int status
        cdef fleet_arrival how = ARRIVALS[arrival]
        with nogil:
            status = fleet_step(&self.c, how, &cost)
        self.check(status)
        return dict(cost)

    cdef int check(self, int status) except -1:
        if status:
            problem = self.c.problem.decode()
            kind = errors.OutOfMemoryError if problem == "out of memory" else RuntimeError
            raise kind(f"{self.c.ranks} virtual ranks: {problem}")
        return 0

    def __dealloc__(self):
        fleet_close(&self.c)
        free(self.requests)
        free(self.tensors)
        free(self.dims)

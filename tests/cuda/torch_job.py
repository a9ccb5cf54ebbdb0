# SPDX-License-Identifier: Apache-2.0
"""hpccoll.torch over the fake driver: tensors that claim to be on a GPU, in the fake driver's memory.

A build of PyTorch for the CPU can hold such a tensor, but has no operation for it. So the tests use the parts of
hpccoll that need none: operations in place, and results that are taken over without a copy.
"""

import types

import doubles
import numpy as np
import torch
from doubles import Stream, current, read, write

import hpccoll
import hpccoll.torch as hvd
from hpccoll import device_arrays
from hpccoll.default_world import current as default_world
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.distributed.process_group import ProcessGroup
from hpccoll.torch.distributed.work import Work


class OnGpu(torch.Tensor):
    """A tensor on cuda:0 without operations."""

    @staticmethod
    def __new__(cls, values):
        shape = tuple(values.shape)
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32, device=torch.device("cuda", 0))

    def __init__(self, values):
        self.memory = doubles.Memory(values.nbytes)
        write(self.memory.ptr, values, current.stream)

    def data_ptr(self):
        return self.memory.ptr

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} of a tensor in device memory")


class Event:
    """torch.cuda.Event of the current stream's end."""

    def __init__(self):
        self.stream = current.stream

    def query(self):
        return True


def stand_in():
    """Replace the functions of torch.cuda that hpccoll calls, and those that a build for the CPU lacks."""
    waits = []
    stream = types.SimpleNamespace(record_event=Event, wait_event=waits.append)
    torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(
        cuda_stream=current.stream.ptr, record_event=stream.record_event, wait_event=stream.wait_event
    )
    return waits


def same(tensor, want):
    np.testing.assert_array_equal(read(tensor.data_ptr(), tuple(tensor.shape), np.float32, current.stream), want)


def horovod(size, rank):
    """Horovod's functions in place, groups, and refused calls."""
    x, y = OnGpu(np.full((3, 2), rank + 1.0, np.float32)), OnGpu(np.full(5, 2.0, np.float32))
    total = size * (size + 1) / 2
    assert hvd.synchronize(hvd.allreduce_async_(x, op=hvd.Sum, name="x")) is x
    same(x, np.full((3, 2), total))
    hvd.synchronize(hvd.grouped_allreduce_async_([x, y], op=hvd.Average, name="g"))
    same(x, np.full((3, 2), total))
    same(y, np.full(5, 2.0))
    z = OnGpu(np.full(4, float(rank), np.float32))
    hvd.synchronize(hvd.broadcast_async_(z, size - 1, name="z"))
    same(z, np.full(4, size - 1.0))
    try:
        hvd.allreduce_async_(x, op=hvd.Adasum)
    except hpccoll.UnsupportedError as error:
        assert "Adasum is formed in host memory" in str(error)
    else:
        raise AssertionError("Adasum was begun")


def gathers(size, rank):
    """Results are the memory of the data plane, through DLPack."""
    taken = []
    device_arrays.torch_library().take = lambda result, like: taken.append(result) or result
    request = hpccoll.allgather_async(OnGpu(np.full((rank + 1, 2), rank, np.float32)))
    result = request.wait()
    assert taken == [result]
    assert result.shape == (sum(range(size + 1)), 2)
    values = read(result.address, result.shape, np.float32, current.stream)
    np.testing.assert_array_equal(values[:, 0], np.repeat(np.arange(size), np.arange(size) + 1))
    received = torch.arange(6.0)  # what torch.from_dlpack gives of a flat result
    assert ADAPTER.from_bytes(received, torch.empty(0, 2), (3, 2)).shape == (3, 2)


def work(size, rank, waits):
    """A work of the backend is in order with the stream that waits for it, whichever thread completed it."""
    x = OnGpu(np.ones(3, np.float32))
    one = Work("allreduce", [hpccoll.allreduce_async(x, out=x)], [x], None, 30.0, lambda: None, "w")
    assert one.wait()
    assert [event.stream for event in waits] == [current.stream]
    settled = current.stream
    current.stream = Stream()
    assert one.wait()
    assert [event.stream for event in waits] == [settled, settled]
    current.stream = settled
    same(x, np.full(3, float(size)))


def p2p(size, rank, waits):
    """send, recv and recv_anysource of the backend."""
    group = ProcessGroup.__new__(ProcessGroup)
    group.world, group._name, group._timeout = default_world(), "p2p", 30.0
    right, left = (rank + 1) % size, (rank - 1) % size
    x, y = OnGpu(np.full(3000, rank, np.float32)), OnGpu(np.zeros(3000, np.float32))
    for any_source in (False, True):
        receive = group.recv_anysource([y], 1) if any_source else group.recv([y], left, 1)
        works = receive, group.send([x], right, 1)
        waits.clear()
        assert all(work.wait() for work in works)
        assert len(waits) == 2
        assert works[0].source_rank() == left
        same(y, np.full(3000, left))
        write(y.memory.ptr, np.zeros(3000, np.float32), current.stream)


if __name__ == "__main__":
    doubles.use_device(0)
    current.stream = Stream()
    waits = stand_in()
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    horovod(size, rank)
    work(size, rank, waits)
    p2p(size, rank, waits)
    gathers(size, rank)
    hvd.shutdown()

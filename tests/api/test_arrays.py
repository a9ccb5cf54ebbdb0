# SPDX-License-Identifier: Apache-2.0
"""What an array may be, and that results come back as what went in."""

import array

import ml_dtypes
import numpy as np
import pytest
import torch

import hpccoll
from hpccoll import arrays


class Interface:
    """Speaks one array protocol and nothing else."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Dlpack:
    """A host array of another library: DLPack and a namespace."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **how):
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __array_namespace__(self):
        return Namespace


class Namespace:
    @staticmethod
    def from_dlpack(x):
        return Dlpack(np.from_dlpack(x))


def test_results_are_of_the_type_that_went_in(everywhere):
    def program(world):
        p = world.size
        total = lambda x: world.allreduce(x)  # noqa: E731
        assert total(2) == 2 * p
        assert total(1.5) == 1.5 * p
        assert isinstance(total(1.5), float)
        assert isinstance(total(np.float32(2)), np.float32)
        assert total(np.array(3)).shape == ()
        assert isinstance(total(np.array(3)), np.ndarray)
        assert total(bytearray(b"\1\2")) == bytearray([p, 2 * p])
        assert total(array.array("d", [1, 2])) == array.array("d", [p, 2 * p])
        assert total(memoryview(np.ones(2))).tolist() == [p, p]
        assert isinstance(total(Dlpack(np.ones(2))), Dlpack)
        assert total(Dlpack(np.ones(2))).x.tolist() == [p, p]
        assert isinstance(total(np.ones(2).view(np.recarray)), np.recarray)
        assert total(np.ones(2, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
        x = np.ones(3)
        assert total(Interface(__array_interface__=x.__array_interface__, keep=x)).tolist() == [p] * 3
        assert world.broadcast([1, 2, 3]).tolist() == [1, 2, 3]

    everywhere(program)


def test_groups_of_anything(everywhere):
    def program(world):
        p = world.size
        got = world.allreduce([1, np.ones(2), bytearray(b"\3"), np.float32(4)])
        assert got[0] == p
        assert got[1].tolist() == [p, p]
        assert got[2] == bytearray([3 * p])
        assert isinstance(got[3], np.float32)

    everywhere(program)


def test_strided_inputs_and_outputs(everywhere):
    def program(world):
        base = np.arange(60.0).reshape(6, 10)
        for view in (base[::2], base[:, 3:7], base.T, base[::-1, ::-2]):
            got = world.allreduce(view)
            np.testing.assert_array_equal(got, view * world.size)
            assert got.flags.c_contiguous
        target = np.zeros((6, 10))
        assert world.allreduce(base[:, ::2], out=target[:, ::2]).base is target
        np.testing.assert_array_equal(target[:, ::2], base[:, ::2] * world.size)
        assert (target[:, 1::2] == 0).all()
        gathered = np.zeros((6 * world.size, 20))[:, ::2]
        world.allgather(base, out=gathered)
        np.testing.assert_array_equal(gathered, np.concatenate([base] * world.size))

    everywhere(program)


def test_outputs_of_other_types(everywhere):
    def program(world):
        out = bytearray(4)
        assert world.allreduce(np.ones(4, np.uint8), out=out) is out
        assert out == bytearray([world.size] * 4)
        for wrong in (bytes(4), 3, np.float32(1), [1, 2]):
            with pytest.raises(hpccoll.HpccollError):
                world.allreduce(np.ones(4, np.uint8), out=wrong)

    everywhere(program)


def test_memory_of_no_known_device_is_refused(threads):
    class OnMetal(Dlpack):
        def __dlpack_device__(self):
            return (8, 0)

    with pytest.raises(hpccoll.UnsupportedError, match=r"device \(8, 0\)"):
        arrays.adopt(OnMetal(np.ones(2)))


def test_device_memory_without_a_driver_is_an_error(threads):
    (world,) = threads(1, cuda_library="/no/such/libcuda.so.1")
    x = Interface(__cuda_array_interface__={"data": (1, False), "shape": (1,), "typestr": "<f4"})
    with pytest.raises(hpccoll.UnsupportedError, match=r"/no/such/libcuda.so.1.*unset HPCCOLL_CUDA_LIBRARY"):
        world.allreduce(x)
    assert world.allreduce(np.ones(1)) == 1


def test_torch_tensors(everywhere):
    """Through DLPack, by hpccoll itself; hpccoll.torch has a shorter way."""

    def program(world):
        p = world.size
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool):
            x = torch.ones(5, dtype=dtype)
            got = world.allreduce(x)
            assert isinstance(got, torch.Tensor)
            assert got.dtype == dtype
            assert torch.equal(got, x if dtype is torch.bool else x * p)
            assert torch.equal(world.allreduce(x[::2], hpccoll.MAX), x[::2])
        weight = torch.ones(3, requires_grad=True)
        assert world.allreduce(weight, out=weight, prescale=2.0) is weight
        assert weight.tolist() == [2 * p] * 3
        received, rows = world.alltoall(torch.arange(2 * p))
        assert received.tolist() == [2 * world.rank, 2 * world.rank + 1] * p
        assert rows.tolist() == [2] * p

    everywhere(program)


def test_buffers(everywhere):
    """What adapters hand in: an address, a dtype, a shape. A gather of them gives bytes."""

    def program(world):
        p, float32 = world.size, hpccoll._core.DTYPES.index("float32")
        x, y, rows = (
            np.ones((2, 3), np.float32),
            np.zeros((2, 3), np.float32),
            np.zeros((2 * p, 3), np.float32),
        )
        given, taken, gathered = (hpccoll._core.Buffer(a.ctypes.data, float32, a.shape, a) for a in (x, y, rows))
        assert given.owner is x
        assert world.allreduce(given, out=taken) is taken
        assert (y == p).all()
        world.broadcast(taken, out=taken)
        world.allreduce([given, taken], out=[given, taken])
        assert (x == p).all()
        assert (y == p * p).all()
        received = world.allgather(given)
        assert received.dtype == np.uint8
        assert (received.view(np.float32) == p).all()
        assert world.allgather(given, out=gathered) is gathered
        assert (rows == p).all()
        with pytest.raises(hpccoll.InvalidArgumentError, match="needs an out"):
            world.allreduce(given)
        with pytest.raises(hpccoll.ResultSizeError):
            world.allgather(given, out=hpccoll._core.Buffer(y.ctypes.data, float32, (1, 3), y))
        with pytest.raises(hpccoll.InvalidArgumentError):
            hpccoll._core.Buffer(x.ctypes.data, 99, x.shape, x)

    everywhere(program)

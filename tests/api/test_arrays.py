# SPDX-License-Identifier: Apache-2.0
"""What an array may be, and that results come back as what went in."""

import array
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import arrays

ROOT = Path(__file__).resolve().parents[2]


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
        total = lambda x: hpccoll.allreduce(x, world=world)  # noqa: E731
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
        assert hpccoll.broadcast([1, 2, 3], world=world).tolist() == [1, 2, 3]

    everywhere(program)


def test_groups_of_anything(everywhere):
    def program(world):
        p = world.size
        got = hpccoll.allreduce([1, np.ones(2), bytearray(b"\3"), np.float32(4)], world=world)
        assert got[0] == p
        assert got[1].tolist() == [p, p]
        assert got[2] == bytearray([3 * p])
        assert isinstance(got[3], np.float32)

    everywhere(program)


def test_strided_inputs_and_outputs(everywhere):
    def program(world):
        base = np.arange(60.0).reshape(6, 10)
        for view in (base[::2], base[:, 3:7], base.T, base[::-1, ::-2]):
            got = hpccoll.allreduce(view, world=world)
            np.testing.assert_array_equal(got, view * world.size)
            assert got.flags.c_contiguous
        target = np.zeros((6, 10))
        assert hpccoll.allreduce(base[:, ::2], out=target[:, ::2], world=world).base is target
        np.testing.assert_array_equal(target[:, ::2], base[:, ::2] * world.size)
        assert (target[:, 1::2] == 0).all()
        gathered = np.zeros((6 * world.size, 20))[:, ::2]
        hpccoll.allgather(base, out=gathered, world=world)
        np.testing.assert_array_equal(gathered, np.concatenate([base] * world.size))

    everywhere(program)


def test_outputs_of_other_types(everywhere):
    def program(world):
        out = bytearray(4)
        assert hpccoll.allreduce(np.ones(4, np.uint8), out=out, world=world) is out
        assert out == bytearray([world.size] * 4)
        for wrong in (bytes(4), 3, np.float32(1), [1, 2]):
            with pytest.raises(hpccoll.HpccollError):
                hpccoll.allreduce(np.ones(4, np.uint8), out=wrong, world=world)

    everywhere(program)


def test_device_memory_is_refused():
    with pytest.raises(hpccoll.UnsupportedError, match="device memory"):
        arrays.adopt(Interface(__cuda_array_interface__={"data": (1, False)}))

    class OnDevice(Dlpack):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(hpccoll.UnsupportedError, match=r"device \(2, 0\)"):
        arrays.adopt(OnDevice(np.ones(2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "python", [p for p in [ROOT / ".venv-torch/bin/python"] if p.exists()], ids=["torch"]
)
def test_torch_tensors(python):
    script = Path(__file__).with_name("torch_tensors.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, script], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "fine\n", done.stderr

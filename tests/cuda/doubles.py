# SPDX-License-Identifier: Apache-2.0
"""Arrays over the memory of the fake driver: plain ones, and doubles of the used parts of CuPy and PyTorch.

Work in a stream that runs late writes and reads the values, so a program that does not wait for it sees other values.
"""

import ctypes
import sys
import types
from typing import Any

import numpy as np

from hpccoll import _core, _cuda, config
from hpccoll.device_arrays import DeviceArray

DELAY = 24
"""Pieces of work in front of a value that is written."""

_driver = ctypes.CDLL(config.read().cuda_library)
_alive: list[Any] = []


def call(name: str, *arguments: Any) -> None:
    status = getattr(_driver, name)(*arguments)
    assert status == 0, f"{name}: {status}"


def pointer(number: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(number)


def use_device(number: int) -> None:
    """Make the device's context the thread's current one."""
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    call("cuCtxSetCurrent", context)


class Stream:
    """A queue of the fake driver."""

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        call("cuStreamCreateWithPriority", ctypes.byref(handle), 1, 0)
        self.ptr = self.cuda_stream = handle.value or 0

    def wait(self) -> None:
        call("cuStreamSynchronize", pointer(self.ptr))


current = types.SimpleNamespace(stream=None)
"""The stream of the doubles of CuPy and PyTorch."""


class Memory:
    """Device memory. When the last array over it is gone, it gets another owner, which works in the current stream and
    writes other values there: the pools of CuPy and PyTorch behave so."""

    garbage = np.full(1 << 16, 0x22, np.uint8)

    def __init__(self, nbytes: int) -> None:
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        self.ptr, self.nbytes = address.value, nbytes
        self.address, self.device, self.stream = self.ptr, 0, 0  # what a DeviceArray asks

    def __del__(self) -> None:
        if self.nbytes and current.stream and not sys.is_finalizing():
            source, size = pointer(self.garbage.ctypes.data), ctypes.c_size_t(self.nbytes)
            _driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.ptr), source, size, pointer(current.stream.ptr))


def write(address: int, values: np.ndarray, stream: Stream) -> None:
    """Write `values` some time after the call, often after other values."""
    wrong = np.full(values.nbytes, 0x11, np.uint8)
    right = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    _alive.extend((wrong, right))
    for data in [wrong] * DELAY + [right]:
        if values.nbytes:
            source, size = pointer(data.ctypes.data), ctypes.c_size_t(values.nbytes)
            call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, size, pointer(stream.ptr))


def read(address: int, shape: tuple[int, ...], dtype: Any, stream: Stream) -> np.ndarray:
    """Return the values that work in `stream` finds there."""
    out = np.zeros(shape, dtype)
    if out.nbytes:
        target, size = pointer(out.ctypes.data), ctypes.c_size_t(out.nbytes)
        call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), size, pointer(stream.ptr))
    stream.wait()
    return out


class Plain:
    """An array with __cuda_array_interface__, which includes its stream."""

    def __init__(self, values: Any, written_in: Stream, /, **more: Any) -> None:
        values = np.asarray(values)
        self.memory, self.shape, self.dtype, self.stream = (
            Memory(values.nbytes),
            values.shape,
            values.dtype,
            written_in,
        )
        self.more = more
        write(self.memory.ptr, values, written_in)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        said = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.memory.ptr, False),
            "version": 3,
        }
        return said | {"stream": self.stream.ptr} | self.more


class ByDlpack:
    """An array with DLPack alone; its values are ready in the order of the stream that DLPack's consumer gives."""

    def __init__(self, values: np.ndarray, stream: Stream) -> None:
        self.memory, self.stream = Memory(values.nbytes), stream
        self.array = DeviceArray(self.memory, code(values.dtype), values.shape)
        write(self.memory.ptr, values, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int) -> Any:
        event = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(event), 2)
        call("cuEventRecord", event, pointer(self.stream.ptr))
        call("cuStreamWaitEvent", pointer(stream), event, 0)
        return self.array.__dlpack__(stream=stream)


def code(dtype: Any) -> int:
    return _core.DTYPES.index(np.dtype(dtype).name)


def values_of(array: Any, stream: Stream) -> np.ndarray:
    """Return the values of any array here, as work in `stream` finds them."""
    if isinstance(array, DeviceArray):
        return read(array.address, array.shape, array.dtype, stream)
    if hasattr(array, "data_ptr"):
        return read(array.data_ptr(), array.shape, array.dtype.numpy, stream)
    if isinstance(array, Plain):
        return read(array.memory.ptr, array.shape, array.dtype, stream)
    return read(array.data.ptr, array.shape, array.dtype, stream)


# ---- CuPy ------------------------------------------------------------------------------------------


class Number:
    """A device, as CuPy's: a context manager with an id."""

    def __init__(self, number: int) -> None:
        self.id = number

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class CupyArray:
    """The used parts of cupy.ndarray; `strides` in elements, for one kind of strided array: every second element."""

    __module__ = "cupy"

    def __init__(self, shape: Any, dtype: Any, memptr: Any = None, step: int = 1) -> None:
        self.shape, self.dtype, self.step = tuple(shape), np.dtype(dtype), step
        self.device = Number(0)
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self.data = memptr or types.SimpleNamespace(ptr=(memory := Memory(self.nbytes * step)).ptr, keep=memory)
        self.flags = types.SimpleNamespace(c_contiguous=step == 1)

    def __setitem__(self, all_of_it: Any, source: "CupyArray") -> None:
        copy_strided(source.data.ptr, source.step, self.data.ptr, self.step, self)


def copy_strided(source: int, source_step: int, target: int, target_step: int, like: CupyArray) -> None:
    """Copy element by element, in the current stream."""
    size = like.dtype.itemsize
    for i in range(int(np.prod(like.shape))):
        addresses = (ctypes.c_uint64(a + i * step * size) for a, step in ((target, target_step), (source, source_step)))
        call("cuMemcpyDtoDAsync_v2", *addresses, ctypes.c_size_t(size), pointer(current.stream.ptr))


def to_cupy(values: np.ndarray, step: int = 1) -> CupyArray:
    """Return an array of the double of CuPy, written in its current stream."""
    dense = CupyArray(values.shape, values.dtype)
    write(dense.data.ptr, values, current.stream)
    if step == 1:
        return dense
    strided = CupyArray(values.shape, values.dtype, step=step)
    strided[...] = dense
    _alive.append(dense)
    return strided


def install_cupy() -> None:
    def contiguous(x: CupyArray) -> CupyArray:
        dense = CupyArray(x.shape, x.dtype)
        dense[...] = x
        return dense

    cuda = types.SimpleNamespace(
        get_current_stream=lambda device: current.stream,
        UnownedMemory=lambda ptr, size, owner, device: (ptr, owner),
        MemoryPointer=lambda memory, offset: types.SimpleNamespace(ptr=memory[0] + offset, keep=memory[1]),
    )
    sys.modules["cupy"] = types.SimpleNamespace(  # type: ignore[assignment]
        cuda=cuda, empty=CupyArray, ndarray=CupyArray, ascontiguousarray=contiguous
    )


# ---- PyTorch ---------------------------------------------------------------------------------------


class TorchDtype:
    def __init__(self, name: str) -> None:
        import ml_dtypes

        self.name, self.numpy = name, np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Tensor:
    """The parts of torch.Tensor on a GPU that hpccoll uses."""

    __module__ = "torch"
    is_cuda, layout = True, "strided"

    def __init__(self, memory: Any, address: int, shape: tuple[int, ...], dtype: TorchDtype) -> None:
        self.memory, self.address, self.shape, self.dtype = memory, address, shape, dtype
        self.device = types.SimpleNamespace(index=0)

    def data_ptr(self) -> int:
        return self.address

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def is_contiguous(self) -> bool:
        return True


TORCH_DTYPES = {name: TorchDtype(name) for name in _core.DTYPES if name not in ("uint16", "uint32", "uint64")}


def to_torch(values: np.ndarray) -> Tensor:
    """Return an array of the double of PyTorch, written in its current stream."""
    memory = Memory(values.nbytes)
    write(memory.ptr, values, current.stream)
    return Tensor(memory, memory.ptr, values.shape, TORCH_DTYPES[values.dtype.name])


def install_torch() -> None:
    def empty(shape: Any, dtype: TorchDtype, device: Any) -> Tensor:
        memory = Memory(int(np.prod(shape)) * dtype.numpy.itemsize)
        return Tensor(memory, memory.ptr, tuple(shape), dtype)

    def from_dlpack(array: Any) -> Tensor:
        seen = _cuda.DLPackView(array.__dlpack__(stream=current.stream.ptr))
        return Tensor(seen, seen.address, seen.shape, TORCH_DTYPES[array.dtype.name])

    sys.modules["torch"] = types.SimpleNamespace(  # type: ignore[assignment]
        Tensor=Tensor, strided="strided", empty=empty, from_dlpack=from_dlpack,
        cuda=types.SimpleNamespace(current_stream=lambda device: current.stream), **TORCH_DTYPES,
    )  # fmt: skip

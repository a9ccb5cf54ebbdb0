# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG002 - one protocol for all libraries, none of which needs all its arguments
"""Arrays in device memory: their library, device, address, and the stream of their library.

The twin of hpccoll.arrays. No library is imported: a caller with an array of PyTorch or CuPy has imported it. Nor is
hpccoll._cuda, which moves device memory, before the first such array: this module registers with hpccoll._core what to
do when one comes.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Protocol

import numpy as np

from hpccoll import _core, arrays, errors

__all__ = ["DeviceArray", "Lent", "Library", "library_of", "torch_codes", "torch_library"]

_DEVICES = (2, 10, 13)  # DLPack: kDLCUDA, kDLROCM, kDLCUDAManaged


class Lent(NamedTuple):
    """A contiguous array in device memory, in the form that the extension takes."""

    address: int
    dtype: int
    """Index in _core.DTYPES."""
    shape: tuple[int, ...]
    device: int
    """Number of the device; -1: the driver must be asked."""
    stream: int | None
    """Handle of the stream behind whose work the array may be used; None: it may be used at once."""
    array: Any
    """The object that owns the memory: the given array, or a contiguous copy of it."""
    library: Library
    read_only: bool = False


class Library(Protocol):
    """The interface to the library of an array."""

    copies: bool
    """Whether describe() copies a strided array, and copy() copies it back."""

    def device(self, x: Any) -> int:
        """The number of the device of `x`; -1: the driver must be asked."""

    def address(self, x: Any) -> int:
        """The address of `x`, for the driver."""

    def describe(self, x: Any, inlet: int) -> Lent:
        """Return address, device and stream of `x`. A strided array is copied, if its library can do that.

        :param inlet: a stream of hpccoll's, for libraries that order their work before that of a given stream
        """

    def stream(self, device: int) -> int | None:
        """Return the stream of the caller's next work on `device`; None: unknown."""

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Make a new array of the dtype and on the device of `like`; None: this library makes none."""

    def take(self, result: Any, like: Any) -> Any:
        """Turn a DeviceArray into an array of this library, over the same memory."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy between two arrays of this library, in its current stream."""


def library_of(x: Any) -> Library | None:
    """The library of an array in device memory; None: `x` is something else."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch_library() if x.is_cuda else None
    if cupy is not None and isinstance(x, cupy.ndarray):
        return _cupy()
    if hasattr(x, "__cuda_array_interface__"):
        return _INTERFACE
    if type(x).__module__.startswith("tensorflow."):
        return None  # hpccoll.arrays adopts it, or refuses it
    if hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] in _DEVICES:
        return _DLPACK
    return None


# ---- PyTorch -------------------------------------------------------------------------------------------


class _Torch:
    copies = True

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self.torch = torch
        self.codes = torch_codes()
        self.current = torch.cuda.current_stream

    def device(self, x: Any) -> int:
        return int(x.device.index)

    def address(self, x: Any) -> int:
        return int(x.data_ptr())

    def describe(self, x: Any, inlet: int) -> Lent:
        code = self.codes.get(x.dtype)
        if code is None:
            raise errors.UnsupportedError(f"dtype {x.dtype} is not supported; one of: {', '.join(arrays.NAMES)}")
        if x.layout is not self.torch.strided:
            raise errors.UnsupportedError(f"a tensor of layout {x.layout}: use x.to_dense()")
        if x.is_conj() or x.is_neg():
            x = x.detach().resolve_conj().resolve_neg()
        if not x.is_contiguous():
            x = x.detach().contiguous()
        device = x.device.index
        return Lent(x.data_ptr(), code, tuple(x.shape), device, self.stream(device), x, self)

    def stream(self, device: int) -> int | None:
        handle: int = self.current(device).cuda_stream
        return handle

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        return self.torch.empty(shape, dtype=like.dtype, device=like.device)

    def take(self, result: Any, like: Any) -> Any:
        return self.torch.from_dlpack(result)

    def copy(self, target: Any, source: Any) -> None:
        target.detach().copy_(source)


# ---- CuPy ----------------------------------------------------------------------------------------------


class _CuPy:
    copies = True

    def __init__(self) -> None:
        self.cupy = sys.modules["cupy"]

    def device(self, x: Any) -> int:
        return int(x.device.id)

    def address(self, x: Any) -> int:
        return int(x.data.ptr)

    def describe(self, x: Any, inlet: int) -> Lent:
        code = arrays.dtype_code(x.dtype)
        if not x.flags.c_contiguous:
            x = self.cupy.ascontiguousarray(x)
        device = x.device.id
        return Lent(x.data.ptr, code, x.shape, device, self.stream(device), x, self)

    def stream(self, device: int) -> int | None:
        handle: int = self.cupy.cuda.get_current_stream(device).ptr
        return handle

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        with like.device:
            return self.cupy.empty(shape, like.dtype)

    def take(self, result: Any, like: Any) -> Any:
        cuda = self.cupy.cuda
        memory = cuda.UnownedMemory(result.address, result.nbytes, result, like.device.id)
        return self.cupy.ndarray(result.shape, like.dtype, cuda.MemoryPointer(memory, 0))

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source


# ---- anything else ---------------------------------------------------------------------------------------


class _Other:
    """An unknown library, used by its arrays' protocols: results are DeviceArrays, after a wait."""

    copies = False

    def stream(self, device: int) -> int | None:
        return None

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        return None

    def take(self, result: Any, like: Any) -> Any:
        return result

    def copy(self, target: Any, source: Any) -> None:
        raise AssertionError("strided arrays are refused")


class _Interface(_Other):
    """Arrays with __cuda_array_interface__, versions 2 and 3."""

    def device(self, x: Any) -> int:
        return -1

    def address(self, x: Any) -> int:
        return int(x.__cuda_array_interface__["data"][0])

    def describe(self, x: Any, inlet: int) -> Lent:
        said = x.__cuda_array_interface__
        if said.get("mask") is not None:
            raise errors.UnsupportedError(f"{arrays.name_of(x)} has a mask, which cannot be moved")
        try:
            dtype = np.dtype(said["typestr"])
        except TypeError:
            dtype = np.dtype(np.void)
        if not arrays.has_code(dtype):
            known = ", ".join(arrays.NAMES)
            raise errors.UnsupportedError(f"dtype {dtype} is not supported in device memory; supported are: {known}")
        code, shape = arrays.dtype_code(dtype), tuple(said["shape"])
        _check_contiguous(x, shape, said.get("strides"), dtype.itemsize)
        stream = said.get("stream")
        if stream == 0:
            raise errors.InvalidArgumentError(
                f"{arrays.name_of(x)} names stream 0, which __cuda_array_interface__ forbids: 1 is the legacy default "
                "stream, 2 the thread's own"
            )
        address, read_only = said["data"]
        return Lent(address, code, shape, -1, stream, x, self, read_only)


class _DLPack(_Other):
    """Arrays with __dlpack__, which order their work before that of the given stream."""

    def device(self, x: Any) -> int:
        return int(x.__dlpack_device__()[1])

    def address(self, x: Any) -> int:
        return 0

    def describe(self, x: Any, inlet: int) -> Lent:
        seen = _cuda().DLPackView(x.__dlpack__(stream=inlet))
        code = _dlpack_code(x, *seen.dtype)
        size = seen.dtype[1] // 8
        strides = None if seen.strides is None else tuple(size * n for n in seen.strides)
        _check_contiguous(x, seen.shape, strides, size)
        return Lent(seen.address, code, seen.shape, seen.device, inlet, seen, self)


def _dlpack_code(x: Any, kind: int, bits: int, lanes: int) -> int:
    names = {(4, 16): "bfloat16", (6, 8): "bool"}
    known = {0: "int", 1: "uint", 2: "float", 5: "complex"}
    name = names.get((kind, bits)) or f"{known.get(kind, 'dtype ')}{bits}"
    if lanes != 1 or name not in arrays.NAMES:
        raise errors.UnsupportedError(
            f"{arrays.name_of(x)} has DLPack type ({kind}, {bits}, {lanes}), which is not supported; one of: "
            f"{', '.join(arrays.NAMES)}"
        )
    return arrays.NAMES.index(name)


def _check_contiguous(x: Any, shape: tuple[int, ...], strides: Any, size: int) -> None:
    """Raise UnsupportedError unless the elements lie one after another; strides None: they do."""
    if strides is None:
        return
    if len(strides) != len(shape):
        raise errors.InvalidArgumentError(
            f"{arrays.name_of(x)} has shape {shape} and strides {tuple(strides)}: a stride for each dimension, please"
        )
    expected = size
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != expected and 0 not in shape:
            raise errors.UnsupportedError(
                f"{arrays.name_of(x)} of shape {shape} is not contiguous (strides {tuple(strides)} bytes): make a "
                "contiguous copy with its own library"
            )
        expected *= n


_made: dict[str, Library] = {}
_INTERFACE, _DLPACK = _Interface(), _DLPack()


def torch_codes() -> dict[Any, int]:
    """Return the index in arrays.NAMES of each torch.dtype that has one; PyTorch has been imported."""
    torch = sys.modules["torch"]
    return {getattr(torch, name): code for code, name in enumerate(arrays.NAMES) if hasattr(torch, name)}


def torch_library() -> Library:
    """PyTorch, which has been imported."""
    return _made.get("torch") or _made.setdefault("torch", _Torch())


def _cupy() -> Library:
    return _made.get("cupy") or _made.setdefault("cupy", _CuPy())


# ---- results of no library -------------------------------------------------------------------------------


class DeviceArray:
    """A result in device memory for an unknown library, with __cuda_array_interface__ and DLPack.

    Its values are complete when the caller gets it.
    """

    def __init__(self, memory: Any, dtype: int, shape: tuple[int, ...]) -> None:
        """Describe memory that has an `address`, is on the device of number `device`, and lives while it is referenced.

        :param dtype: index in _core.DTYPES
        """
        self._memory, self._dtype = memory, dtype
        self.address: int = memory.address
        self.device: int = memory.device
        """The number of its device."""
        self.shape = tuple(shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self._itemsize

    @property
    def _itemsize(self) -> int:
        return 2 if arrays.NAMES[self._dtype] == "bfloat16" else arrays.DTYPES[self._dtype].itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; for bfloat16 the dtype of ml_dtypes."""
        if arrays.NAMES[self._dtype] == "bfloat16":
            import ml_dtypes

            dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return dtype
        return arrays.DTYPES[self._dtype]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if arrays.NAMES[self._dtype] == "bfloat16":
            raise AttributeError("__cuda_array_interface__ has no name for bfloat16: use DLPack")
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
            "strides": None, "stream": None,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        """A capsule of DLPack's first form; its consumer's `stream` is stored for the release of the memory."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a result in device memory is lent as it is, neither copied nor moved")
        if stream is not None and stream != -1:
            self._memory.stream = stream
        return _cuda().dlpack_capsule(self, arrays.NAMES[self._dtype], 8 * self._itemsize)

    def __repr__(self) -> str:
        return f"<hpccoll.DeviceArray: {arrays.NAMES[self._dtype]} {self.shape} on GPU {self.device}>"


# ---- the extension ----------------------------------------------------------------------------------------


def _cuda() -> Any:
    try:
        from hpccoll import _cuda as extension  # for the first array in device memory
    except ImportError as error:
        raise errors.UnsupportedError(f"device memory needs hpccoll._cuda, which this build lacks: {error}") from None
    return extension


def _accelerator(**known: Any) -> Any:
    return _cuda().Accelerator(**known)


_core.use_device_arrays(library_of, DeviceArray, _accelerator)

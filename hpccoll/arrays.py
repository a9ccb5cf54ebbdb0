# SPDX-License-Identifier: Apache-2.0
"""Converts any array-like to a NumPy array over the same memory, and a result back to the type of the input.

The extension handles plain NumPy arrays itself, and calls :func:`adopt` for all other types. See
hpccoll.device_arrays for arrays in GPU memory.
"""

import array
import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpccoll import errors

__all__ = [
    "DTYPES",
    "NAMES",
    "adopt",
    "adopt_out",
    "check_unmasked",
    "dtype_code",
    "flat_bytes",
    "has_code",
    "name_of",
    "refusal",
    "type_name",
]

Restore = Callable[[np.ndarray], Any]

NAMES = (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 complex128"
).split()

_CPU_DEVICES = (1, 3, 11)  # DLPack: kDLCPU, kDLCUDAHost, kDLROCMHost

DTYPES: dict[int, np.dtype[Any]] = {i: np.dtype(name) for i, name in enumerate(NAMES) if name != "bfloat16"}
_CODES: dict[np.dtype[Any], int] = {dtype: code for code, dtype in DTYPES.items()}
_BFLOAT16 = NAMES.index("bfloat16")


def dtype_code(dtype: np.dtype[Any]) -> int:
    """Return the code of `dtype` in the C tables. Raise UnsupportedError if it has no code."""
    code = _CODES.get(dtype)
    if code is not None:
        return code
    if dtype.name == "bfloat16":  # registered by ml_dtypes, which need not be installed
        DTYPES[_BFLOAT16] = dtype
        _CODES[dtype] = _BFLOAT16
        return _BFLOAT16
    raise refusal(dtype, "an operation")


def has_code(dtype: np.dtype[Any]) -> bool:
    """Return whether the C tables have `dtype`. Operations without arithmetic move other dtypes as bytes.

    Raise UnsupportedError for elements that are references to Python objects.
    """
    if dtype.hasobject:
        raise errors.UnsupportedError(
            f"dtype {dtype} holds Python objects: use broadcast_object and the other functions of objects"
        )
    return dtype in _CODES or dtype.name == "bfloat16"


def type_name(dtype: np.dtype[Any] | str, most: int) -> bytes:
    """Describe the elements of `dtype`, so that two texts are equal only if the elements have the same format.

    :param dtype: a dtype, or the description itself
    :param most: limit in bytes; a longer text is cut and ends with a hash of the rest
    """
    text = (dtype if isinstance(dtype, str) else _describe(dtype)).encode()
    if len(text) <= most:
        return text
    end = b"... " + hashlib.blake2b(text, digest_size=6).hexdigest().encode()
    return text[: most - len(end)] + end


def _describe(dtype: np.dtype[Any]) -> str:
    """As "<M8[s]" or "{'id': <i4, 'x': (3,)<f8 at 8}": without metadata, titles and alignment."""
    if dtype.subdtype is not None:
        element, shape = dtype.subdtype
        return f"{shape}{_describe(element)}"
    if dtype.names is None:
        return dtype.name if dtype.isbuiltin == 2 else dtype.str  # the str of a registered dtype is not unique
    fields, end = [], 0
    for name in dtype.names:
        element, offset = dtype.fields[name][:2]  # type: ignore[index]
        fields.append(f"{name!r}: {_describe(element)}" + (f" at {offset}" if offset != end else ""))
        end = offset + element.itemsize
    return f"{{{', '.join(fields)}}}" + (f" in {dtype.itemsize} bytes" if dtype.itemsize != end else "")


def refusal(dtype: np.dtype[Any], operation: str) -> errors.UnsupportedError:
    """Make the error of an operation that computes with elements of `dtype`."""
    if not dtype.isnative and dtype.names is None:
        return errors.UnsupportedError(
            f"dtype {dtype.str} is not in this machine's byte order: use x.astype({dtype.newbyteorder('=').str!r})"
        )
    return errors.UnsupportedError(
        f"{operation} of dtype {dtype} is not defined, which moves as bytes where nothing is reduced; reductions take: "
        f"{', '.join(NAMES)}"
    )


def flat_bytes(x: np.ndarray) -> np.ndarray:
    """The memory of the contiguous array `x` as 1-d uint8 (0-d and dtypes without a buffer format included)."""
    return x.reshape(-1).view(np.uint8)


def check_unmasked(x: Any, argument: str) -> None:
    """Raise UnsupportedError if `x`, which the caller calls `argument`, is a masked array."""
    if isinstance(x, np.ma.MaskedArray):
        raise errors.UnsupportedError(
            f"{argument} is a masked array, and masks do not travel: use {argument}.filled(value)"
        )


def adopt(x: Any) -> tuple[np.ndarray, Restore | None]:
    """Return a NumPy array over the memory of `x`, and a function that converts a result to the type of `x`.

    Python numbers and lists are copied. None in place of the function: a result stays a NumPy array.
    Raise UnsupportedError for unknown devices, and for objects that are no arrays.
    """
    check_unmasked(x, "x")
    if isinstance(x, np.ndarray):
        return np.asarray(x), lambda result: result.view(type(x))
    if isinstance(x, (np.generic, bool, int, float, complex)):
        return np.asarray(x), lambda result: result[()] if result.ndim == 0 else result
    if _module(x) == "tensorflow":
        return _adopt_tensorflow(x)
    if hasattr(x, "__dlpack__"):
        return _adopt_dlpack(x)
    try:
        view = memoryview(x)
    except TypeError:
        return _adopt_other(x), None
    return np.asarray(view), _restore_buffer(x)


def adopt_out(out: Any, argument: str = "out") -> np.ndarray:
    """Return a writable NumPy array over the memory of `out`. Raise InvalidArgumentError if it is read-only.

    :param argument: the name of the caller's argument, for the error
    """
    if isinstance(out, (np.generic, bool, int, float, complex, list, tuple)):
        raise errors.InvalidArgumentError(f"{argument} is {name_of(out)}, which cannot be written in place")
    result = adopt(out)[0]
    if not result.flags.writeable and _module(out) == "torch":
        result = _writable_alias(result)  # NumPy treats a DLPack capsule without flags as read-only
    if not result.flags.writeable:
        raise errors.InvalidArgumentError(f"{argument} ({name_of(out)}) is read-only")
    if not result.flags.c_contiguous and _overlaps_itself(result):
        raise errors.InvalidArgumentError(f"{argument} ({name_of(out)}) overlaps itself: elements of it share memory")
    return result


def _overlaps_itself(x: np.ndarray) -> bool:
    """Return whether two elements share memory, as in an array that numpy.broadcast_to() made."""
    steps = sorted((abs(stride), n) for stride, n in zip(x.strides, x.shape, strict=True) if n > 1)
    reach = x.itemsize  # of the dimensions so far
    for stride, n in steps:
        if stride < reach:
            break
        reach += stride * (n - 1)
    else:
        return False
    if x.size == 0:
        return False
    places = np.zeros(1, np.int64)
    for stride, n in steps:
        places = np.add.outer(places, stride * np.arange(n)).reshape(-1)
    places.sort()
    return bool((np.diff(places) < x.itemsize).any())


def name_of(x: Any) -> str:
    """The name of an array's type in errors."""
    return f"a {type(x).__module__}.{type(x).__qualname__}"


def _module(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def _adopt_other(x: Any) -> np.ndarray:
    if isinstance(x, (list, tuple)) or hasattr(x, "__array_interface__") or hasattr(x, "__array__"):
        try:
            result = np.asarray(x)
        except ValueError as error:  # rows of differing lengths
            raise errors.UnsupportedError(f"{name_of(x)} does not make one array: {error}") from None
        if result.dtype != object:
            return result
    raise errors.UnsupportedError(f"{name_of(x)} is not an array: neither buffer protocol nor DLPack nor numbers")


def _restore_buffer(x: Any) -> Restore | None:
    if isinstance(x, (bytes, bytearray)):
        return lambda result: type(x)(result.tobytes())
    if isinstance(x, array.array):
        return lambda result: array.array(x.typecode, result.tobytes())
    return (lambda result: memoryview(result.data)) if isinstance(x, memoryview) else None


def _traced(x: Any) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        f"{name_of(x)} has no values yet, because it is a part of a program that is being traced: use hpccoll.jax or "
        "hpccoll.tensorflow in it"
    )


def _adopt_dlpack(x: Any) -> tuple[np.ndarray, Restore]:
    try:
        device = x.__dlpack_device__()
    except AttributeError:  # jax.core.Tracer only seems to have it
        raise _traced(x) from None
    if device[0] not in _CPU_DEVICES:
        raise errors.UnsupportedError(
            f"{name_of(x)} lives on device {tuple(map(int, device))} of DLPack, whose memory hpccoll cannot move: copy "
            "it to the host first"
        )
    if _module(x) == "torch":
        return _adopt_torch(x)
    space = x.__array_namespace__() if hasattr(x, "__array_namespace__") else sys.modules[_module(x)]
    if _module(x) == "jaxlib" and x.dtype.name == "bfloat16":  # NumPy's DLPack does not support it
        return np.asarray(x), space.asarray
    return np.from_dlpack(x), space.from_dlpack


def _adopt_torch(x: Any) -> tuple[np.ndarray, Restore]:
    """Adopt a tensor without importing PyTorch: its owner has imported it.

    NumPy's DLPack does not support bfloat16, so its bits are passed as int16.
    """
    torch = sys.modules["torch"]
    x = x.detach()
    if x.dtype != torch.bfloat16:
        return np.from_dlpack(x), torch.from_dlpack
    import ml_dtypes

    bits = np.from_dlpack(x.view(torch.int16)).view(ml_dtypes.bfloat16)
    return bits, lambda result: torch.from_dlpack(result.view(np.int16)).view(torch.bfloat16)


def _adopt_tensorflow(x: Any) -> tuple[np.ndarray, Restore]:
    """Adopt a tensor or a variable without importing TensorFlow. A result is copied into memory of TensorFlow's."""
    tensorflow = sys.modules["tensorflow"]
    tensor = tensorflow.convert_to_tensor(x)
    if not hasattr(tensor, "numpy"):
        raise _traced(x)
    if "GPU" in tensor.device:
        raise errors.UnsupportedError(f"{name_of(x)} lives on {tensor.device}: use hpccoll.tensorflow")
    if tensor.dtype == tensorflow.string:
        raise errors.UnsupportedError(f"{name_of(x)} holds strings: use broadcast_object and the like")
    if tensor.dtype != tensorflow.bfloat16:
        return np.asarray(memoryview(tensor)), tensorflow.constant
    import ml_dtypes

    bits = np.asarray(memoryview(tensorflow.bitcast(tensor, tensorflow.uint16)))
    return bits.view(ml_dtypes.bfloat16), tensorflow.constant


class _Alias:
    def __init__(self, x: np.ndarray) -> None:
        self.keep = x
        self.__array_interface__ = {
            "data": (x.__array_interface__["data"][0], False),
            "shape": x.shape,
            "strides": x.strides,
            "typestr": f"|V{x.itemsize}",
            "version": 3,
        }


def _writable_alias(x: np.ndarray) -> np.ndarray:
    return np.asarray(_Alias(x)).view(x.dtype)

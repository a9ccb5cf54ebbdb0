# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of operations and optimizers; they run on this rank before it sends anything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import JAXSparse

from hpccoll import _core, arrays, compression, errors
from hpccoll.frontend.process_sets import check_process_set
from hpccoll.frontend.reductions import Adasum, Average, Reduction, Sum, choose

__all__ = ["array", "check_options", "checked_reduction", "converted", "received", "wire_of"]


def array(x: Any) -> Any:
    """Return an argument as an array of JAX.

    :raises UnsupportedError: (a ValueError) JAX cannot convert it, or the library does not have its dtype
    """
    made = converted(x)
    _check_dtype(made.dtype)
    return made


def converted(x: Any) -> Any:
    """Return an argument as an array of JAX, of any dtype.

    :raises UnsupportedError: (a ValueError) JAX cannot convert it
    """
    if isinstance(x, JAXSparse):
        raise errors.UnsupportedError(f"{arrays.name_of(x)} is sparse: use its todense()")
    try:  # jnp.asarray() would cut an array of 64 bits to 32 where jax_enable_x64 is off
        return x if isinstance(x, jax.Array) else jnp.asarray(x)
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.UnsupportedError(f"{arrays.name_of(x)} does not make an array of JAX: {error}") from error


def received(like: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a message that is like this array.

    :raises InvalidArgumentError: (a ValueError) it has no shape and dtype
    :raises UnsupportedError: (a ValueError) the library does not have its dtype
    """
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        raise errors.InvalidArgumentError(f"like is {like!r}: an array, or a jax.ShapeDtypeStruct")
    _check_dtype(like.dtype)
    return tuple(like.shape), np.dtype(like.dtype)


def _check_dtype(dtype: Any) -> None:
    if not isinstance(dtype, np.dtype) or not arrays.has_code(dtype):
        raise errors.UnsupportedError(f"dtype {dtype} is not supported; one of: {', '.join(arrays.NAMES)}")


def _check_factors(*factors: Any) -> None:
    for factor in factors:
        if not isinstance(factor, (int, float, np.integer, np.floating)):
            raise errors.InvalidArgumentError(f"a factor is {factor!r}: a number, known when the program is traced")


def _checked_op(op: Any) -> Reduction:
    chosen = choose(op)
    if chosen is Adasum:
        raise errors.UnsupportedError("hpccoll.jax has no Adasum: use Average, or hpccoll.torch")
    return chosen


def check_options(op: Any, narrow: Any, process_set: Any) -> None:
    """Check the options of an optimizer's allreduces when the optimizer is made.

    :param op: a reduction
    :param narrow: a compression
    :param process_set: the ranks that take part
    :raises InvalidArgumentError: (a ValueError) one of them is wrong
    :raises UnsupportedError: (a ValueError) the reduction is Adasum
    """
    _checked_op(op)
    _check_compression(narrow)
    check_process_set(process_set)


def _check_compression(narrow: Any) -> None:
    if narrow is not None and not isinstance(narrow, compression.Compression):
        raise errors.InvalidArgumentError(f"compression is {narrow!r}: use one of hpccoll.jax.Compression")


def checked_reduction(op: Any, x: Any, prescale: float, postscale: float) -> int:
    """Return the number of a reduction of an array.

    :raises InvalidArgumentError: (a ValueError) `op` is no reduction, or a factor is no number
    :raises UnsupportedError: (a ValueError) the reduction or the factors are not defined for this dtype
    """
    _check_factors(prescale, postscale)
    chosen = _checked_op(op)
    code = chosen.code
    if not _core.reduction_defined(code, arrays.dtype_code(x.dtype)):
        raise errors.UnsupportedError(f"{chosen.name} of {x.dtype} is not defined")
    scaled = prescale != 1.0 or postscale != 1.0
    if scaled and (chosen not in (Sum, Average) or not jnp.issubdtype(x.dtype, jnp.inexact)):
        raise errors.UnsupportedError(f"factors go with Sum and Average of floating-point values, not {x.dtype}")
    return code


def wire_of(narrow: Any, x: Any) -> int:
    """Return the number of the dtype in which an array travels between nodes.

    :raises InvalidArgumentError: (a ValueError) `narrow` is no compression
    """
    _check_compression(narrow)
    wide = narrow is not None and x.dtype in (jnp.float32, jnp.float64)
    return narrow.dtype_code if wide else _core.WIRE_SAME

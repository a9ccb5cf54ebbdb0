# SPDX-License-Identifier: Apache-2.0
"""Operations in programs that XLA compiles (`jit_compile=True`): each becomes a custom call, on the CPU.

It is the custom call of hpccoll.jax, in a program of StableHLO that has nothing else. TensorFlow has no function that
registers a custom call, so ext/xla does it through XLA's own table of functions.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import _core, errors
from hpccoll.tensorflow.internals import XLA_LIBRARY, XLA_TABLE, in_xla, xla_call_module
from hpccoll.tensorflow.retraced import prepare

__all__ = ["call", "check_can_compile", "compiles", "problem"]

_TYPES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16",
    "uint32": "ui32", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip
_CAN = ("allreduce", "broadcast")
_MODULE_VERSION = 9
"""The rules by which TensorFlow reads the module of an XlaCallModule have a version."""

_graphs: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that begin with steps that do nothing."""


def compiles() -> bool:
    """Say whether XLA compiles the current graph."""
    return not tf.executing_eagerly() and in_xla(tf.compat.v1.get_default_graph())


@functools.cache
def problem() -> str:
    """Return why programs that XLA compiles cannot have operations here, or "". The first call registers them."""
    if tf.config.list_logical_devices("GPU"):
        return "there is a GPU, for which XLA compiles, and this serves programs for the CPU"
    from hpccoll import _xla  # here: most programs need none of it

    why = _xla.register(XLA_LIBRARY, XLA_TABLE) or prepare(_xla.CALL)
    return f"TensorFlow {tf.__version__}: {why}; 2.21 was tried" if why else ""


def check_can_compile(operation: str) -> None:
    """Check that a program of XLA can have this operation.

    :raises UnsupportedError: (a ValueError) it cannot
    """
    if not problem() and operation in _CAN:
        return
    why = problem() or f"whose shapes are fixed; it can have {' and '.join(_CAN)}"
    raise errors.UnsupportedError(
        f"{operation} cannot be in a program that is compiled by XLA ({why}): use tf.function(jit_compile=False), "
        "model.compile(..., jit_compile=False), or call it outside of the program"
    )


def call(operation: str, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Put an operation into the current graph; return its results, which have the shapes of the tensors.

    :param attributes: those of TensorFlow's operations of ours, see ext/tensorflow/register.c
    :raises UnsupportedError: (a ValueError) a shape is not known
    """
    name = attributes["tensor_name"]
    for tensor in tensors:
        if not tensor.shape.is_fully_defined():
            raise errors.UnsupportedError(
                f"{name}: the shape {tensor.shape} is not known when the program is traced, and XLA compiles for one "
                "shape: trace it with tensors, without an input_signature, or use jit_compile=False"
            )
    made: Any = xla_call_module(
        args=list(tensors),
        version=_MODULE_VERSION,
        module=_module(operation, tensors, attributes),
        Sout=[tensor.shape for tensor in tensors],
        Tout=[tensor.dtype for tensor in tensors],
        platforms=["CPU"],
    )
    return list(made)


# ---- StableHLO -------------------------------------------------------------------------------------------


def _module(operation: str, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    from hpccoll import _xla

    types = [_type(tensor) for tensor in tensors]
    names = [f"%x{i}" for i in range(len(types))]
    placed = [i for i, tensor in enumerate(tensors) if 0 not in tensor.shape]
    values = {i: f"%y#{place}" if len(placed) > 1 else "%y" for place, i in enumerate(placed)}
    aliases = ", ".join(_alias(place, i, len(placed)) for place, i in enumerate(placed))
    given, made = (f"({', '.join(kinds)})" for kinds in (types, [types[i] for i in placed]))
    layouts, of_results = (", ".join(map(_row_major, some)) for some in (tensors, [tensors[i] for i in placed]))
    called = {0: "", 1: "%y = "}.get(len(placed), f"%y:{len(placed)} = ")
    return f"""module {{
  func.func public @main({", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))}) -> {given} {{
    {_steps(_xla)}
    {called}"stablehlo.custom_call"({", ".join(names)}) {{
      call_target_name = "{_xla.CALL}", api_version = 4 : i32, has_side_effect = true,
      backend_config = {{{_attributes(operation, tensors, attributes)}}},
      operand_layouts = [{layouts}], result_layouts = [{of_results}], output_operand_aliases = [{aliases}]
    }} : {given} -> {made}
    return {", ".join(values.get(i, name) for i, name in enumerate(names))} : {", ".join(types)}
  }}
}}"""


def _type(tensor: Any) -> str:
    return f"tensor<{''.join(f'{n}x' for n in tensor.shape)}{_TYPES[tensor.dtype.name]}>"


def _row_major(tensor: Any) -> str:
    rank = tensor.shape.rank
    return f"dense<{list(range(rank - 1, -1, -1)) if rank else ''}> : tensor<{rank}xindex>"


def _alias(place: int, operand: int, count: int) -> str:
    """Say that a result lies where its tensor lies.

    Else XLA may put it where another operation's tensor lay, and would run the one after the other.
    """
    at = [place] if count > 1 else []
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {at}, operand_index = {operand}, "
        "operand_tuple_indices = []>"
    )


def _attributes(operation: str, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    numbers = {"operation": _core.OPERATIONS.index(operation)}
    numbers |= {key: attributes[key] for key in ("set", "reduction", "wire", "group", "root") if key in attributes}
    numbers = {"wire": _core.WIRE_SAME, "root": -1, **numbers}
    known = [f"{key} = {value} : i64" for key, value in numbers.items()]
    known += [f"{key} = {attributes[key]:#018x} : f64" for key in ("prescale", "postscale") if key in attributes]
    if any(0 in tensor.shape for tensor in tensors):  # an empty result is none of the custom call's: ext/xla/xla.c
        rows = ", ".join(str(tensor.shape[0]) if 0 in tensor.shape else "-1" for tensor in tensors)
        known.append(f"empty = array<i64: {rows}>")
    name = "".join(f"\\{byte:02X}" for byte in attributes["tensor_name"].encode())
    return ", ".join([*known, f'name = "{name}"'])


def _steps(_xla: Any) -> str:
    """Return what makes XLA start independent steps of the graph without waiting for one another, once in a graph."""
    graph = tf.compat.v1.get_default_graph()
    if graph in _graphs:
        return ""
    _graphs.add(graph)
    step = (
        f'"stablehlo.custom_call"() {{call_target_name = "{_xla.NOTHING}", api_version = 4 : i32, '
        f"has_side_effect = true, backend_config = {{}}}} : () ->"
    )
    return "\n    ".join([f"%large = {step} tensor<{_xla.LARGE_BYTES}xui8>", *[f"{step} ()"] * (_xla.MANY_STEPS - 1)])

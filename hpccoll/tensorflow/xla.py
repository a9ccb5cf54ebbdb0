# SPDX-License-Identifier: Apache-2.0
"""Operations in programs that XLA compiles (`jit_compile=True`): each becomes a custom call, on the CPU.

It is the custom call of hpccoll.jax, in a program of StableHLO that has nothing else. TensorFlow has no function that
registers a custom call, so ext/xla does it through XLA's own table of functions.
"""

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import _core, errors
from hpccoll.tensorflow.internals import XLA_LIBRARY, XLA_TABLE, in_xla, independent_of, xla_call_module
from hpccoll.tensorflow.levels import finish, has_levels
from hpccoll.tensorflow.retraced import prepare

__all__ = ["call", "check_can_compile", "compiles", "problem"]

_TYPES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16",
    "uint32": "ui32", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip
_CAN = ("allreduce", "broadcast")
_MODULE_VERSION = 9
"""The version of the rules by which TensorFlow reads the module of an XlaCallModule."""

_TICKET = tf.TensorSpec([1], tf.uint8)
"""The form of a byte that orders steps: it is computed when another step has ended."""
_graphs: weakref.WeakSet[Any] = weakref.WeakSet()
"""The graphs that have the steps of _steps() already."""


def compiles() -> bool:
    """Return whether XLA compiles the current graph."""
    return not tf.executing_eagerly() and in_xla(tf.compat.v1.get_default_graph())


@functools.cache
def problem() -> str:
    """Return why programs of XLA cannot have our operations here, or "". The first call registers the operations."""
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

    :param attributes: those of our operations in TensorFlow, see ext/tensorflow/register.c
    :raises UnsupportedError: (a ValueError) a shape is not known
    """
    name = attributes["tensor_name"]
    for tensor in tensors:
        if not tensor.shape.is_fully_defined():
            raise errors.UnsupportedError(
                f"{name}: the shape {tensor.shape} is not known when the program is traced, and XLA compiles for one "
                "shape: trace it with tensors, without an input_signature, or use jit_compile=False"
            )
    placed = [i for i, tensor in enumerate(tensors) if 0 not in tensor.shape]
    if not placed or not has_levels():
        return _put(_call(operation, tensors, attributes, in_steps=False), tensors, tensors)
    *made, inputs_ready = _put(_call(operation, tensors, attributes, in_steps=True), tensors, [*tensors, _TICKET])
    last, others = finish(inputs_ready, lambda ready: _finished([made[i] for i in placed], inputs_ready, ready)[0].op)
    _run_independently(inputs_ready.op, last, *others)
    for i, result in zip(placed, last.outputs, strict=True):
        made[i] = result
    return made


def _put(module: str, tensors: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Put a module into the current graph; return its results, which have the shapes and dtypes of `results`."""
    made: Any = xla_call_module(
        args=list(tensors),
        version=_MODULE_VERSION,
        module=module,
        Sout=[result.shape for result in results],
        Tout=[result.dtype for result in results],
        platforms=["CPU"],
    )
    return list(made)


def _run_independently(*operations: Any) -> None:
    """Let TensorFlow run these stateful operations in any order, but run all of them."""
    dependencies = independent_of(tf.compat.v1.get_default_graph())
    for op in operations if dependencies is not None else ():
        dependencies.run_independently(op)


# ---- StableHLO -------------------------------------------------------------------------------------------


def _call(operation: str, tensors: Sequence[Any], attributes: Mapping[str, Any], in_steps: bool) -> str:
    """Return the module of an operation. With `in_steps` it has one more result, a byte computed when its tensors are.

    Each result has the memory of its tensor. Otherwise XLA may give it the memory of another operation's tensor, and
    would run these two operations one after the other.
    """
    from hpccoll import _xla

    names = [f"%x{i}" for i in range(len(tensors))]
    placed = [i for i, tensor in enumerate(tensors) if 0 not in tensor.shape]
    given = [tensors[i] for i in placed]
    at = {i: place for place, i in enumerate(placed)}
    text = _steps(_xla)
    of_call = _attributes(operation, tensors, attributes)
    behind: list[tuple[str, Any]] = []
    if in_steps:
        in_place = [(place, 1 + place) for place in range(len(placed))]
        operands = list(zip([names[i] for i in placed], given, strict=True))
        text += _custom_call(_xla.NOTHING, operands, [_TICKET, *given], in_place, "", "%r")
        behind = [("%r#0", _TICKET)]
        of_call += ", trailing = 1 : i64"
    operands = [(f"%r#{1 + at[i]}" if behind and i in at else name, tensors[i]) for i, name in enumerate(names)]
    in_place = list(at.items())
    text += _custom_call(_xla.CALL, [*operands, *behind], given, in_place, of_call, "%y")
    results = [(_result("%y", at[i], len(placed)) if i in at else name) for i, name in enumerate(names)]
    return _main(names, tensors, text, [*results, *(name for name, _ in behind)], [*tensors, *(t for _, t in behind)])


def _finished(results: Sequence[Any], inputs_ready: Any, ready: Any) -> list[Any]:
    """Put the last step of an operation into the graph, which waits for both bytes; return the operation's results."""
    from hpccoll import _xla

    operands = [*results, inputs_ready, ready]
    names = [f"%x{i}" for i in range(len(operands))]
    in_place = [(i, i) for i in range(len(results))]
    text = _custom_call(_xla.NOTHING, list(zip(names, operands, strict=True)), results, in_place, "", "%y")
    values = [_result("%y", i, len(results)) for i in range(len(results))]
    return _put(_main(names, operands, text, values, results), operands, results)


def _main(
    names: Sequence[str], tensors: Sequence[Any], text: str, values: Sequence[str], results: Sequence[Any]
) -> str:
    arguments = ", ".join(f"{name}: {_type(tensor)}" for name, tensor in zip(names, tensors, strict=True))
    types = ", ".join(map(_type, results))
    return f"""module {{
  func.func public @main({arguments}) -> ({types}) {{{text}
    return {", ".join(values)} : {types}
  }}
}}"""


def _result(name: str, place: int, count: int) -> str:
    return f"{name}#{place}" if count > 1 else name


def _custom_call(
    target: str, operands: Sequence[tuple[str, Any]], results: Sequence[Any], in_place: Sequence[tuple[int, int]],
    attributes: str, name: str,
) -> str:  # fmt: skip
    """Return the text of a custom call.

    :param operands: the name of each operand, and a tensor of its shape and dtype
    :param in_place: pairs of an operand and a result that share memory, by their indices
    :param name: the name of the results
    """
    given, made = (f"({', '.join(map(_type, some))})" for some in ([tensor for _, tensor in operands], results))
    layouts, of_results = (", ".join(map(_row_major, some)) for some in ([tensor for _, tensor in operands], results))
    aliases = ", ".join(_alias(result, operand, len(results)) for operand, result in in_place)
    called = {0: "", 1: f"{name} = "}.get(len(results), f"{name}:{len(results)} = ")
    return f"""
    {called}"stablehlo.custom_call"({", ".join(operand for operand, _ in operands)}) {{
      call_target_name = "{target}", api_version = 4 : i32, has_side_effect = true, backend_config = {{{attributes}}},
      operand_layouts = [{layouts}], result_layouts = [{of_results}], output_operand_aliases = [{aliases}]
    }} : {given} -> {made}"""


def _type(tensor: Any) -> str:
    return f"tensor<{''.join(f'{n}x' for n in tensor.shape)}{_TYPES[tensor.dtype.name]}>"


def _row_major(tensor: Any) -> str:
    rank = tensor.shape.rank
    return f"dense<{list(range(rank - 1, -1, -1)) if rank else ''}> : tensor<{rank}xindex>"


def _alias(place: int, operand: int, count: int) -> str:
    """Write that a result has the memory of an operand."""
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
    if any(0 in tensor.shape for tensor in tensors):  # the custom call does not get empty results: ext/xla/xla.c
        rows = ", ".join(str(tensor.shape[0]) if 0 in tensor.shape else "-1" for tensor in tensors)
        known.append(f"empty = array<i64: {rows}>")
    name = "".join(f"\\{byte:02X}" for byte in attributes["tensor_name"].encode())
    return ", ".join([*known, f'name = "{name}"'])


def _steps(_xla: Any) -> str:
    """Return steps that make XLA start independent steps of the graph without waiting, once in each graph."""
    graph = tf.compat.v1.get_default_graph()
    if graph in _graphs:
        return ""
    _graphs.add(graph)
    step = (
        f'"stablehlo.custom_call"() {{call_target_name = "{_xla.NOTHING}", api_version = 4 : i32, '
        f"has_side_effect = true, backend_config = {{}}}} : () ->"
    )
    steps = [f"%large = {step} tensor<{_xla.LARGE_BYTES}xui8>", *[f"{step} ()"] * (_xla.MANY_STEPS - 1)]
    return "".join(f"\n    {line}" for line in steps)

# SPDX-License-Identifier: Apache-2.0
"""Faults that a test plants into a rank; a front end once had each of them, and the programs must find them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from differential import checks
from differential.operations import REDUCES

import hpccoll

Function = Callable[..., Any]
NOT_BYTES = "biufc"
"""Kinds of NumPy's dtypes that the library knows; others move as bytes."""


def _replace(owner: Any, name: str, wrap: Callable[[Function], Function]) -> None:
    mock.patch.object(owner, name, wrap(getattr(owner, name))).start()


def mean_for_sum() -> None:
    """A sum of floats is a mean."""

    def wrap(f: Function) -> Function:
        def wrong(world: hpccoll.World, x: Any, op: Any = hpccoll.SUM, **more: Any) -> Any:
            first = x[0] if isinstance(x, list) else x
            return f(world, x, hpccoll.AVERAGE if op == hpccoll.SUM and first.dtype.kind == "f" else op, **more)

        return wrong

    _replace(hpccoll.World, "allreduce", wrap)


def numbers_of_reductions() -> None:
    """The core's SUM is the front end's Average, its MAX a Min: two enumerations with other numbers."""
    from hpccoll.horovod import operations

    names = {"SUM": "AVERAGE", "AVERAGE": "SUM", "MAX": "MIN", "MIN": "MAX"}

    def wrap(f: Function) -> Function:
        return lambda *given: hpccoll.Reduction[names.get((op := f(*given)).name, op.name)]

    _replace(operations, "choose", wrap)


def layout() -> None:
    """An array's elements are taken in the order in which they lie in memory."""

    def wrap(f: Function) -> Function:
        def wrong(world: hpccoll.World, x: Any, *given: Any, **more: Any) -> Any:
            return f(world, x if isinstance(x, list) else np.ravel(x, order="K").reshape(x.shape), *given, **more)

        return wrong

    for name in ("allreduce", "allgather", "broadcast", "scan"):
        _replace(hpccoll.World, name, wrap)


def types_of_bytes() -> None:
    """The ranks compare only the size of an element, if its type moves as bytes."""

    def wrap(f: Function) -> Function:
        def wrong(world: hpccoll.World, x: Any, *given: Any, **more: Any) -> Any:
            if isinstance(x, list) or (x.dtype.kind in NOT_BYTES and x.dtype.isnative):
                return f(world, x, *given, **more)
            result = f(world, np.ascontiguousarray(x).reshape(x.shape).view(f"V{x.itemsize}"), *given, **more)
            return None if result is None else result.view(x.dtype)

        return wrong

    for name in ("allgather", "broadcast", "gather"):
        _replace(hpccoll.World, name, wrap)


def gradient_of_broadcast() -> None:
    """The gradient of a broadcast is a sum, as Horovod's was until 2021."""
    import hpccoll.torch as hvd

    def wrap(f: Function) -> Function:
        return lambda x, *given, **more: f(x * hvd.size() - x.detach() * (hvd.size() - 1), *given, **more)

    _replace(hvd, "broadcast", wrap)


def gradients_summed() -> None:
    """The gradients of allgather and broadcast are sums."""
    from hpccoll.frontend.process_sets import world_of
    from hpccoll.tensorflow import derivatives

    _replace(derivatives, "_averaged", lambda f: lambda *given: f(*given) * world_of(given[-1]).size)


def names_in_functions() -> None:
    """Calls of equal names in a graph keep them."""
    from hpccoll.frontend import names

    _replace(names, "occurrence", lambda _: lambda name, number: name)


def names_of_repeated_calls() -> None:
    """Calls of equal names in a program keep them."""
    from hpccoll.jax import names

    _replace(names, "repeated", lambda _: lambda name, count: name)


def names_over_all_sets() -> None:
    """Calls of equal names are counted over all process sets, also those that only some of the ranks are in."""
    from hpccoll.jax import program

    _replace(program, "_key", lambda f: lambda call: (key := f(call)) and (0, key[1]))


def order_of_messages() -> None:
    """Messages of a program have no order."""
    from hpccoll.jax.call import Call

    mock.patch.object(Call, "ordered", property(lambda call: call.operation == "barrier")).start()


def reduction_for_a_rank() -> None:
    """The number of a reduction is taken for that of a rank."""

    def wrap(f: Function) -> Function:
        def wrong(world: hpccoll.World, *given: Any, root: Any, **more: Any) -> Any:
            number = root.value if isinstance(root, hpccoll.Reduction) else root
            return f(world, *given, root=number % world.size, **more)

        return wrong

    for name in ("broadcast", "reduce", "gather", "scatter"):
        _replace(hpccoll.World, name, wrap)


def any_number_for_a_reduction() -> None:
    """What is no reduction is a sum."""

    def wrap(f: Function) -> Function:
        return lambda *given, op, **more: f(*given, op=hpccoll.SUM if op == 17 else op, **more)

    for name in REDUCES:
        _replace(hpccoll.World, name, wrap)


def overlapping_messages() -> None:
    """A received message may overwrite the one that is sent."""

    def wrap(f: Function) -> Function:
        return lambda world, x, *given: f(world, x.copy(), *given)

    _replace(hpccoll.World, "sendrecv", wrap)


def means_divided_last() -> None:
    """A mean is a sum of the dtype, divided by the number of ranks."""

    def wrap(f: Function) -> Function:
        def wrong(world: hpccoll.World, x: Any, op: Any = hpccoll.SUM, **more: Any) -> Any:
            result = f(world, x, op=hpccoll.SUM if op == hpccoll.AVERAGE else op, **more)
            if op == hpccoll.AVERAGE and result is not None:
                for array in result if isinstance(x, list) else [result]:
                    array /= array.dtype.type(world.size)
            return result

        return wrong

    for name in ("allreduce", "reduce", "reducescatter"):
        _replace(hpccoll.World, name, wrap)


def zeros_of_pairs() -> None:
    """Rank 0's result of an exscan by MINLOC is zeros."""
    mock.patch.object(type(hpccoll.MINLOC), "neutral", lambda _, like: np.zeros_like(like)).start()


def pieces_for_whole_arrays() -> None:
    """A reduction that needs whole arrays gets pieces of them."""
    mock.patch.object(
        hpccoll.UserReduction, "elementwise", property(lambda _: True, lambda *_: None), create=True
    ).start()


def sections_of_fortran() -> None:
    """A part of one column is not contiguous: drivers.py compiles the module so."""


def rows_of_cpp() -> None:
    """The elements of a row are not given to C: drivers.py compiles the header so."""


def second_derivative() -> None:
    """The derivative of a broadcast has no derivative but on the root."""
    import torch

    from hpccoll.torch.horovod import operations

    mock.patch.object(operations, "_zeros", torch.zeros_like).start()


def order_of_dimensions() -> None:
    """Ranks add gradients in the order in which they lie in memory, and do not compare these orders."""
    from hpccoll.torch.adapter import TorchAdapter

    _replace(TorchAdapter, "in_memory_order", lambda f: lambda *given: (f(*given)[0], ""))


def variance() -> None:
    """A variance is the mean of the squares less the square of the mean, in float32."""
    from hpccoll.frontend import moments

    def wrap(f: Function) -> Function:
        def wrong(count: Any, mean: Any, variance: Any, _: Any) -> Any:
            return tuple(each.float().double() for each in f(count, mean, variance, 0.0))

        return wrong

    _replace(moments, "summands", wrap)


def variance_of_tensorflow() -> None:
    """The same, of TensorFlow."""
    import tensorflow as tf

    from hpccoll.frontend import moments

    def wrap(f: Function) -> Function:
        def wrong(count: Any, mean: Any, variance: Any, _: Any) -> Any:
            return tuple(tf.cast(tf.cast(each, tf.float32), tf.float64) for each in f(count, mean, variance, 0.0))

        return wrong

    _replace(moments, "summands", wrap)


def variables_of_before() -> None:
    """In a session, broadcast_ returns the variables' values of before the broadcast."""
    import hpccoll.tensorflow as hvd

    def wrap(f: Function) -> Function:
        def wrong(variables: Any, *given: Any, **more: Any) -> Any:
            before = [variable.read_value() for variable in variables]
            f(variables, *given, **more)
            return before

        return wrong

    _replace(hvd, "broadcast_", wrap)


def unused_calls() -> None:
    """JAX removes a call whose result the program does not use."""
    from hpccoll.jax import primitive

    def wrap(f: Function) -> Function:
        def wrong(*given: Any, **more: Any) -> Any:
            results, effects = f(*given, **more)
            return results, effects - {primitive.UNORDERED}

        return wrong

    _replace(primitive.operation, "abstract_eval", wrap)


def eager_calls_first() -> None:
    """A call outside of compiled programs does not wait for those before it."""
    from hpccoll.jax import eager

    mock.patch.object(eager, "wait_for_programs", lambda *_: None).start()


@dataclass(frozen=True)
class Plant:
    """A fault, and whose programs find it."""

    put: Callable[[], None]
    front_end: str
    modes: str
    """Part of the names of the modes that must find it."""
    check: Callable[..., None] = checks.results
    """The check that finds it."""


PLANTS = {
    "sums are means": Plant(mean_for_sum, "numpy", "NumPy, blocking"),
    "elements in the order of memory": Plant(layout, "numpy", "NumPy, blocking"),
    "types of bytes have a size alone": Plant(types_of_bytes, "numpy", "NumPy, blocking", checks.disagreements),
    "a reduction is a rank": Plant(reduction_for_a_rank, "numpy", "NumPy, blocking", checks.misuses),
    "any number is a reduction": Plant(any_number_for_a_reduction, "numpy", "NumPy, blocking", checks.misuses),
    "messages overwrite what is sent": Plant(overlapping_messages, "numpy", "NumPy, blocking", checks.misuses),
    "means overflow": Plant(means_divided_last, "numpy", "NumPy, blocking"),
    "an exscan of MINLOC begins with zeros": Plant(zeros_of_pairs, "numpy", "NumPy, blocking"),
    "pieces of arrays for whole ones": Plant(pieces_for_whole_arrays, "numpy", "NumPy, blocking"),
    "sections of Fortran": Plant(sections_of_fortran, "fortran", "Fortran"),
    "rows of C++": Plant(rows_of_cpp, "cpp", "C++"),
    "two numbers for a reduction": Plant(numbers_of_reductions, "torch", "PyTorch, blocking"),
    "gradient of broadcast is a sum": Plant(gradient_of_broadcast, "torch", "PyTorch, gradients"),
    "no second gradient of broadcast": Plant(second_derivative, "torch", "PyTorch, second gradients"),
    "orders of dimensions differ": Plant(order_of_dimensions, "torch", "PyTorch, DistributedOptimizer"),
    "variances of PyTorch cancel": Plant(variance, "torch", "PyTorch, SyncBatchNorm"),
    "gradients of allgather and broadcast are sums": Plant(gradients_summed, "tensorflow", "TensorFlow, gradients"),
    "equal names in a tf.function": Plant(names_in_functions, "tensorflow", "TensorFlow, tf.function"),
    "equal names of two tapes": Plant(names_in_functions, "tensorflow", "TensorFlow, tapes"),
    "variables of before a broadcast": Plant(variables_of_before, "tensorflow", "TensorFlow, session with"),
    "variances of TensorFlow cancel": Plant(variance_of_tensorflow, "tensorflow", "TensorFlow, SyncBatch"),
    "equal names in a jit": Plant(names_of_repeated_calls, "jax", "JAX, jit in jit"),
    "equal names count over all sets": Plant(names_over_all_sets, "jax", "JAX, jit in jit"),
    "messages of a jit without order": Plant(order_of_messages, "jax", "JAX, jit in jit"),
    "equal names of trees": Plant(names_of_repeated_calls, "jax", "JAX, allreduce_gradients"),
    "calls without use are removed": Plant(unused_calls, "jax", "JAX, results that rank 0 drops"),
    "calls outside come first": Plant(eager_calls_first, "jax", "JAX, jit and eager"),
}
IN_CI = (
    "elements in the order of memory", "a reduction is a rank", "means overflow", "two numbers for a reduction",
    "an exscan of MINLOC begins with zeros",
)  # fmt: skip


def plant(name: str) -> None:
    """Put a fault into this rank; "" none."""
    if name:
        PLANTS[name].put()

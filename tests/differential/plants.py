# SPDX-License-Identifier: Apache-2.0
"""Faults that a test plants into a rank; a front end once had each of them, and the programs must find them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

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


@dataclass(frozen=True)
class Plant:
    """A fault, and whose programs find it."""

    put: Callable[[], None]
    front_end: str
    modes: str
    """Part of the names of the modes that must find it."""
    disagreement: bool = False
    """Programs find it in which one rank differs."""


PLANTS = {
    "sums are means": Plant(mean_for_sum, "numpy", "NumPy, blocking"),
    "elements in the order of memory": Plant(layout, "numpy", "NumPy, blocking"),
    "types of bytes have a size alone": Plant(types_of_bytes, "numpy", "NumPy, blocking", disagreement=True),
    "two numbers for a reduction": Plant(numbers_of_reductions, "torch", "PyTorch, blocking"),
    "gradient of broadcast is a sum": Plant(gradient_of_broadcast, "torch", "PyTorch, gradients"),
    "gradients of allgather and broadcast are sums": Plant(gradients_summed, "tensorflow", "TensorFlow, gradients"),
    "equal names in a tf.function": Plant(names_in_functions, "tensorflow", "TensorFlow, tf.function"),
    "equal names in a jit": Plant(names_of_repeated_calls, "jax", "JAX, jit in jit"),
    "equal names count over all sets": Plant(names_over_all_sets, "jax", "JAX, jit in jit"),
    "messages of a jit without order": Plant(order_of_messages, "jax", "JAX, jit in jit"),
}
IN_CI = ("elements in the order of memory", "two numbers for a reduction", "gradient of broadcast is a sum")


def plant(name: str) -> None:
    """Put a fault into this rank; "" none."""
    if name:
        PLANTS[name].put()

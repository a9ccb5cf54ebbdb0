# SPDX-License-Identifier: Apache-2.0
"""The gradients of a step over the ranks, for tapes and optimizers: hpccoll.frontend.gradient_step with tensors.

Each gradient is a separate operation that is named after its variable, so ranks may compute the gradients in any order.
In a graph, each operation begins when its gradient is computed. The library fuses them.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any

import tensorflow as tf

from hpccoll.frontend import names
from hpccoll.frontend.compression import NoneCompressor, packed
from hpccoll.frontend.gradient_step import GradientStep, Kind, Sent
from hpccoll.frontend.groups import Variables, check_members
from hpccoll.tensorflow import eager
from hpccoll.tensorflow.adapter import ADAPTER, tensor_of
from hpccoll.tensorflow.dispatch import OPERATIONS
from hpccoll.tensorflow.facts import ranks_of
from hpccoll.tensorflow.operations import allreduce

__all__ = ["VARIABLES", "combine", "divided"]

VARIABLES = Variables("tf.Variable", lambda one: hasattr(one, "shape"))


def combine(
    step: GradientStep,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    local: Container[int] = (),
    *,
    generic_names: bool = False,
) -> list[Any]:
    """Return the combined gradients of all ranks; None stays None.

    The first time, the ranks compare their groups.

    :param gradients: tensors, tf.IndexedSlices or None
    :param variables: the variable of each gradient, in the same order
    :param local: the ids of the variables whose gradients stay on this rank
    :param generic_names: name the gradients by position, because the variables have other names on other ranks
    :raises InvalidArgumentError: (a ValueError) a variable of `groups` is not among the variables
    :raises MismatchError: the ranks have different groups
    """

    def names_of(places: list[int]) -> list[str]:
        if generic_names:
            return [f"{step.name}.{at}" for at in range(len(places))]
        return _names(step.name, [variables[at] for at in places])

    check_members(step.groups, {id(variable) for variable in variables})
    plan = step.plan(variables, [_kind(x) for x in gradients], names_of, local)
    fast = eager.Allreduces(step.op, step.process_set) if tf.executing_eagerly() else None
    begun = [_begin(sent, [gradients[at] for at in sent.members], fast) for sent in plan.sent]
    results = list(gradients)
    for sent, wait in zip(plan.sent, begun, strict=True):
        for at, result in zip(sent.members, wait(), strict=True):
            results[at] = result
    size = ranks_of(step.process_set) if plan.divided else 1
    for at in plan.divided:
        results[at] = divided(results[at], size)
    return results


def _kind(gradient: Any) -> Kind:
    if gradient is None:
        return Kind.NONE
    return Kind.SPARSE if isinstance(gradient, tf.IndexedSlices) else Kind.DENSE


def _begin(sent: Sent, gradients: list[Any], fast: eager.Allreduces | None) -> Callable[[], list[Any]]:
    """Begin to combine gradients; return a function that waits for the results. In a graph it does not wait."""
    call = sent.call
    if sent.sparse:
        made = allreduce(
            gradients[0], op=call.op, name=call.name, compression=sent.compression, process_set=call.process_set
        )
        return lambda: [made]
    tensors = [tensor_of(tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x) for x in gradients]
    if fast is not None and sent.compression is NoneCompressor and eager.can(call):
        return fast.begin(call.name, tensors[0])
    ready = packed(sent.compression, tensors, ADAPTER.dtype)
    call = dataclasses.replace(call, wire=ready.wire)
    if not tf.executing_eagerly():
        results = ready.unpack(OPERATIONS.run_allreduce(call, ready.tensors))
        return lambda: results
    handle = OPERATIONS.requests.begin(call, ready.tensors, in_place=False)
    return lambda: ready.unpack(handle.wait() if call.group else [handle.wait()])


def _names(prefix: str, variables: Sequence[Any]) -> list[str]:
    """Return a name for each gradient, from the variable's; those of equal names are numbered."""
    counter: Counter[str] = Counter()
    made = []
    for i, variable in enumerate(variables):
        path = getattr(variable, "path", None)
        if path is None:
            path = variable.name.split(":")[0] if isinstance(variable, tf.Variable) else f"source {i}"
        counter[path] += 1
        made.append(f"{prefix}.{names.occurrence(path, counter[path])}")
    return made


def divided(gradient: Any, divisor: Any) -> Any:
    """Return a gradient divided by a number; a tf.IndexedSlices stays one."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(ADAPTER.divide(gradient.values, divisor), gradient.indices, gradient.dense_shape)
    return ADAPTER.divide(gradient, divisor)

# SPDX-License-Identifier: Apache-2.0
"""The gradients of a step over the ranks, for tapes and optimizers.

Each gradient is a separate operation that is named after its variable, so ranks may compute the gradients in any order.
In a graph, each operation begins when its gradient is computed. The library fuses them.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import reductions
from hpccoll.frontend import names
from hpccoll.frontend.compression import Compressor, NoneCompressor, check_compressor, wire_for
from hpccoll.frontend.groups import Groups, check_members, checked_groups, compare_groups_once, group_name, members_of
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reduction_spec import check_predivide
from hpccoll.frontend.reductions import Adasum, Average, Op, choose
from hpccoll.horovod.operations import Allreduce
from hpccoll.tensorflow import eager
from hpccoll.tensorflow.adapter import ADAPTER, tensor_of
from hpccoll.tensorflow.facts import ranks_of
from hpccoll.tensorflow.operations import OPERATIONS, allreduce

__all__ = ["Reduction", "reduction_for"]


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The options with which a tape or an optimizer combines gradients."""

    name: str
    op: reductions.Reduction = Average
    compression: Compressor = NoneCompressor
    predivide: float = 1.0
    groups: Groups[Any] = None
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set

    def combine_shared(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        local: Container[int],
        *,
        scales_local: bool,
        generic_names: bool = False,
    ) -> list[Any]:
        """Combine the gradients of all ranks, except those of the variables in `local`.

        A rank outside of the process set keeps all its gradients, as with Horovod.

        :param gradients: see combine()
        :param variables: see combine()
        :param local: the ids of the variables whose gradients stay on this rank
        :param scales_local: divide the gradients of `local` by the number of ranks
        :param generic_names: see combine()
        """
        shared = [at for at, variable in enumerate(variables) if id(variable) not in local]
        if self.process_set.included() is False:
            return list(gradients)
        combined = self.combine([gradients[at] for at in shared], [variables[at] for at in shared], generic_names)
        results = list(gradients)
        for at, gradient in zip(shared, combined, strict=True):
            results[at] = gradient
        if scales_local:
            size = ranks_of(self.process_set)
            for at in set(range(len(results))) - set(shared):
                results[at] = _divided(results[at], size)
        return results

    def combine(self, gradients: Sequence[Any], variables: Sequence[Any], generic_names: bool = False) -> list[Any]:
        """Return the combined gradients of all ranks; None stays None.

        The first time, the ranks compare their groups.

        :param gradients: tensors, tf.IndexedSlices or None
        :param variables: the variable of each gradient, in the same order
        :param generic_names: name the gradients by position, because the variables have other names on other ranks
        :raises MismatchError: the ranks have different groups
        """
        results: list[Any] = list(gradients)
        if self.sparse_as_dense:
            results = [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in results]
        given = [f"{self.name}.{at}" for at in range(len(results))] if generic_names else _names(self.name, variables)
        dense = [i for i, x in enumerate(results) if x is not None and not isinstance(x, tf.IndexedSlices)]
        waits: list[tuple[list[int], Callable[[], list[Any]]]] = []
        plain = self._plain() if tf.executing_eagerly() else None
        for members in self._parts(dense, given, variables):
            name, tensors = group_name([given[i] for i in members]), [tensor_of(results[i]) for i in members]
            if plain is not None and len(members) == 1:
                waits.append((members, plain.begin(name, tensors[0])))
            else:
                waits.append((members, self._begin(name, tensors, group=len(members) > 1)))
        for i, slices in enumerate(gradients):
            if isinstance(results[i], tf.IndexedSlices):
                results[i] = allreduce(
                    slices, op=self.op, name=given[i], compression=self.compression, process_set=self.process_set
                )
        for members, wait in waits:
            for i, result in zip(members, wait(), strict=True):
                results[i] = result
        return results

    def _plain(self) -> eager.Allreduces | None:
        """Return the fast path for eager tensors, if it supports these options."""
        known = self.compression is NoneCompressor and self.predivide == 1.0 and self.op is not Adasum
        return eager.Allreduces(self.op, self.process_set) if known else None

    def _begin(self, name: str, tensors: list[Any], *, group: bool) -> Callable[[], list[Any]]:
        """Begin to combine tensors; return a function that waits for the results. In a graph it does not wait."""
        op, before, after = self.op, 1.0 / self.predivide, self.predivide
        wire = wire_for(self.compression, *map(ADAPTER.dtype, tensors))
        pairs = [(x, None) if wire is not None else self.compression.compress(x) for x in tensors]
        sent = [x for x, _ in pairs]

        def finish(results: Sequence[Any]) -> list[Any]:
            if wire is not None:
                return list(results)
            return [self.compression.decompress(x, context) for x, (_, context) in zip(results, pairs, strict=True)]

        if not tf.executing_eagerly():
            call = Allreduce(name, op, before, after, self.process_set, group=group, wire=wire)
            made = finish(OPERATIONS.run_allreduce(call, sent))
            return lambda: made
        handle = OPERATIONS.requests.allreduce(
            name, sent, op, before, after, self.process_set, group=group, in_place=False, wire=wire
        )
        return lambda: finish(handle.wait() if group else [handle.wait()])

    def _parts(self, dense: list[int], given: list[str], variables: Sequence[Any]) -> list[list[int]]:
        """Return the members of each group; a gradient without a group is alone."""
        check_members(self.groups, {id(variable) for variable in variables})
        if self.groups is None or not dense:
            return [[i] for i in dense]
        parts = members_of(self.groups, {id(variables[i]): i for i in dense})
        compare_groups_once(self.name, [[given[i] for i in part] for part in parts], self.process_set)
        return parts


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


def _divided(gradient: Any, divisor: Any) -> Any:
    """Divide a gradient that stays on this rank by the number of ranks, as the mean of the other gradients is."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(ADAPTER.divide(gradient.values, divisor), gradient.indices, gradient.dense_shape)
    return ADAPTER.divide(gradient, divisor)


def reduction_for(
    name: str,
    compression: Compressor,
    sparse_as_dense: bool,
    op: Op,
    predivide: float,
    num_groups: int,
    groups: Groups[Any],
    process_set: ProcessSet,
) -> Reduction:
    """Check Horovod's arguments of a tape or an optimizer.

    :raises InvalidArgumentError: (a ValueError) one of them is wrong
    """
    chosen = choose(op)
    check_compressor(compression)
    check_predivide(predivide, chosen)
    if num_groups:
        warnings.warn("num_groups is deprecated, use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    chosen_groups = checked_groups(groups, "tf.Variable", lambda one: hasattr(one, "shape"))
    return Reduction(name, chosen, compression, predivide, chosen_groups, sparse_as_dense, process_set)

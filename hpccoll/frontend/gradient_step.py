# SPDX-License-Identifier: Apache-2.0
"""A gradient step: what the ranks send of their gradients, under which names, in which groups, with which factors.

It is a description and touches no tensor. Tapes and optimizers check their arguments here and send what the plan of a
step says; what remains to a front end is how its tensors are sent.
"""

import dataclasses
import enum
import math
import warnings
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpccoll import errors
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.compression import Compressor, NoneCompressor, check_compressor
from hpccoll.frontend.groups import (
    Groups,
    Variables,
    checked_groups,
    compare_groups_once,
    divided,
    members_of,
    named_groups,
    numbered,
)
from hpccoll.frontend.process_sets import ProcessSet, check_process_set, global_process_set
from hpccoll.frontend.reductions import Average, Max, Op, Reduction, choose

__all__ = ["GradientStep", "Kind", "Plan", "Sent", "check_predivide", "either_groups", "gradient_step"]


class Kind(enum.Enum):
    """What a step must know of a gradient."""

    NONE = enum.auto()
    """There is none, on any rank."""
    DENSE = enum.auto()
    SPARSE = enum.auto()
    """Indices and values: it is in no group, as ranks have different numbers of them."""
    LARGEST = enum.auto()
    """It is no gradient but the range of some values: the ranks need the largest one, as it is."""


class Sent(NamedTuple):
    """One operation of a step."""

    members: tuple[int, ...]
    """The numbers of its gradients."""
    call: Allreduce
    compression: Compressor = NoneCompressor
    sparse: bool = False
    """Whether the gradient stays sparse; all others are made dense."""


class Plan(NamedTuple):
    """The operations of a step. Gradients that are in none of them stay as they are."""

    sent: list[Sent]
    divided: list[int]
    """Gradients that stay on their rank, to be divided by the number of ranks, as the mean of the others is."""


@dataclasses.dataclass(frozen=True)
class GradientStep:
    """The checked arguments of a tape or an optimizer. gradient_step() makes one of Horovod's arguments."""

    name: str
    """The beginning of the gradients' names."""
    op: Reduction = Average
    compression: Compressor = NoneCompressor
    groups: Groups[Any] = None
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set
    scales_local: bool = True
    prescale: float = 1.0
    postscale: float = 1.0
    key: Callable[[Any], int] = id
    """Tells variables apart."""

    def plan(
        self,
        variables: Sequence[Any],
        kinds: Sequence[Kind],
        names: Callable[[list[int]], Sequence[str]],
        local: Container[int] = (),
    ) -> Plan:
        """Describe a step. Where there are groups, the ranks compare them the first time.

        A rank outside of the process set keeps all its gradients, as with Horovod.

        :param variables: the variable of each gradient
        :param kinds: the kind of each gradient
        :param names: returns the names of the gradients at these places, which are all that do not stay on their rank
        :param local: the keys of the variables whose gradients stay on this rank
        :raises MismatchError: the ranks have different groups
        """
        if self.process_set.included() is False:
            return Plan([], [])
        shared = [at for at, variable in enumerate(variables) if self.key(variable) not in local]
        name_of = dict(zip(shared, names(shared), strict=True))
        dense, sparse, largest = list[int](), list[int](), list[int]()
        places = {Kind.DENSE: dense, Kind.SPARSE: dense if self.sparse_as_dense else sparse, Kind.LARGEST: largest}
        for at in shared:
            places.get(kinds[at], []).append(at)
        sent = [
            *self._grouped(variables, dense, name_of),
            *(self._sent(name_of[at], [at], sparse=True) for at in sparse),
            *map(_as_largest, self._grouped(variables, largest, name_of)),
        ]
        alone = sorted({*range(len(variables))} - {*shared}) if self.scales_local and local else []
        return Plan(sent, [at for at in alone if kinds[at] is not Kind.NONE])

    def _grouped(self, variables: Sequence[Any], places: list[int], names: dict[int, str]) -> list[Sent]:
        if self.groups is None or not places:
            return [self._sent(names[at], [at]) for at in places]
        number: list[list[str]] = []
        if isinstance(self.groups, int):
            parts, number = divided(places, self.groups), [numbered(self.groups)]
        else:
            parts = members_of(self.groups, {self.key(variables[at]): at for at in places}, self.key)
            grouped = {at for part in parts for at in part}
            parts += [[at] for at in places if at not in grouped]  # the gradient of a variable that is there twice
        named = named_groups(
            parts, names, lambda given: compare_groups_once(self.name, number + given, self.process_set)
        )
        return [self._sent(name, part) for name, part in named]

    def _sent(self, name: str, part: list[int], *, sparse: bool = False) -> Sent:
        call = Allreduce(name, self.op, self.prescale, self.postscale, self.process_set, group=len(part) > 1)
        return Sent(tuple(part), call, self.compression, sparse)


def _as_largest(sent: Sent) -> Sent:
    call = dataclasses.replace(sent.call, op=Max, prescale=1.0, postscale=1.0)
    return Sent(sent.members, call)


def gradient_step(
    name: str,
    variables: Variables,
    *,
    op: Op,
    compression: Compressor,
    predivide: float,
    groups: Groups[Any],
    sparse_as_dense: bool,
    process_set: ProcessSet,
    scales_local: bool = True,
    factor: float = 1.0,
) -> GradientStep:
    """Check Horovod's arguments of a tape or an optimizer.

    :param name: the beginning of the gradients' names
    :param variables: what `groups` may hold
    :param predivide: with Average: Horovod divides by it before the sum, against overflow, and multiplies by it
        afterwards. Here the sum is kept near the mean anyhow, and a factor and its reciprocal are none: it is checked,
        and not passed on
    :param factor: of the results
    :raises InvalidArgumentError: (a ValueError) one of them is wrong
    """
    chosen = choose(op)
    check_compressor(compression)
    check_process_set(process_set)
    check_predivide(predivide, chosen)
    return GradientStep(
        name, chosen, compression, checked_groups(groups, variables), sparse_as_dense, process_set, scales_local,
        postscale=float(factor), key=variables.key,
    )  # fmt: skip


def check_predivide(predivide: float, op: Reduction) -> None:
    """Check the `gradient_predivide_factor` of an optimizer or a tape.

    :raises InvalidArgumentError: it is not positive and finite, or is given with another operation than Average
    """
    if not isinstance(predivide, int | float | np.number) or not 0 < predivide < math.inf:
        raise errors.InvalidArgumentError(f"gradient_predivide_factor is {predivide!r}: a positive number")
    if predivide != 1.0 and op != Average:
        raise errors.InvalidArgumentError(
            f"gradient_predivide_factor not supported with op != Average: it is {predivide:g}, and op is {op.name}"
        )


def either_groups(num_groups: int, groups: Groups[Any]) -> Groups[Any]:
    """Return the argument `groups`, also where a program gives its old name.

    A function calls it that a program calls; so the warning shows the program's line.
    """
    if not num_groups:
        return groups
    warnings.warn("num_groups is the old name of groups", DeprecationWarning, stacklevel=3)
    return num_groups if groups is None else groups

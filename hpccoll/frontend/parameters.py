# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a DistributedOptimizer to the gradients that it reduces."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hpccoll import errors
from hpccoll.frontend.adapter import ParameterAdapter
from hpccoll.frontend.buckets import Bucket, buckets_in_parts, buckets_of_groups, check_names, one_bucket_each
from hpccoll.frontend.compression import Compressor, NoneCompressor, own_wire
from hpccoll.frontend.gradient_step import gradient_step
from hpccoll.frontend.gradients import Gradients
from hpccoll.frontend.groups import Groups, Variables, check_members, members_of
from hpccoll.frontend.process_sets import ProcessSet, has_peers, world_of
from hpccoll.frontend.reducer import check_passes
from hpccoll.frontend.reduction_spec import ReductionSpec
from hpccoll.frontend.reductions import Adasum, Reduction, Sum
from hpccoll.worlds import World

__all__ = ["buckets_of", "distributed_gradients", "names_of"]

P = TypeVar("P")
T = TypeVar("T")


def distributed_gradients(
    adapter: ParameterAdapter[P, T],
    parameters: Sequence[P],
    named: Iterable[tuple[str, P]] | None,
    *,
    compression: Compressor,
    passes: int,
    op: Reduction,
    predivide: float,
    groups: Groups[P],
    sparse_as_dense: bool,
    process_set: ProcessSet,
) -> Gradients[P, T] | None:
    """Check the arguments on all ranks of the process set, and listen to the parameters.

    :param named: names of parameters, the same on all ranks
    :param passes: backward passes that add up before gradients are reduced
    :param predivide: with Average: divide by it before the sum, multiply by it after
    :param groups: into how many groups the gradients are cut, or lists of parameters
    :returns: None if there is nothing to reduce: one rank that stays alone, or a rank outside of the process set
    :raises InvalidArgumentError: names, groups, factors or passes make no sense
    :raises MismatchError: the ranks have different groups
    """
    check_passes(passes)
    kind = f"{adapter.parameter_type.__module__}.{adapter.parameter_type.__qualname__}"
    step = gradient_step(
        "gradient", Variables(kind, lambda one: isinstance(one, adapter.parameter_type)), op=op,
        compression=compression, predivide=predivide, groups=groups, sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )  # fmt: skip
    names = names_of(adapter, parameters, named)
    check_members(step.groups, {id(p) for p in parameters})
    if process_set.included() is False:
        return None
    world, wire = world_of(process_set), own_wire(compression)
    spec = ReductionSpec(world, Sum if step.op is Adasum else step.op, wire)
    buckets = buckets_of(adapter, parameters, names, step.groups, world)
    if not has_peers(process_set):
        return None
    custom = None if compression is NoneCompressor or wire else compression
    return Gradients(adapter, parameters, names, buckets, spec, process_set, passes, custom, sparse_as_dense)


def names_of(
    adapter: ParameterAdapter[P, T], parameters: Sequence[P], named: Iterable[tuple[str, P]] | None
) -> list[str]:
    """Return the name of each parameter; without `named` its number.

    :raises InvalidArgumentError: a parameter has no name in `named`, or two parameters have the same name
    """
    if named is None:
        return [f"noname.{at}" for at in range(len(parameters))]
    pairs = list(named)
    if not all(isinstance(pair, tuple) for pair in pairs):
        raise errors.InvalidArgumentError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    check_names([name for name, _ in pairs])
    name_of = {id(parameter): name for name, parameter in pairs}
    unnamed = [at for at, parameter in enumerate(parameters) if id(parameter) not in name_of]
    if unnamed:
        shown = ", ".join(f"{at} of shape {adapter.shape(adapter.values(parameters[at]))}" for at in unnamed[:8])
        raise errors.InvalidArgumentError(
            "named_parameters was specified, but one or more model parameters were not named: of the optimizer's "
            f"parameters, number {shown}"
        )
    return [name_of[id(parameter)] for parameter in parameters]


def buckets_of(
    adapter: ParameterAdapter[P, T],
    parameters: Sequence[P],
    names: Sequence[str],
    groups: Groups[P],
    world: World,
) -> list[Bucket]:
    """Make a bucket of each group, and of each parameter that is in no group. All ranks call it together.

    :param groups: as checked_groups() returns it: into how many groups the trainable parameters are cut; or lists of
        parameters
    :raises MismatchError: the ranks have different groups
    """
    if groups is None:
        return one_bucket_each(names)
    numbers = {id(p): at for at, p in enumerate(parameters) if adapter.trainable(p)}
    if isinstance(groups, int):
        return buckets_in_parts(names, list(numbers.values()), groups, world)
    return buckets_of_groups(names, members_of(groups, numbers), world)

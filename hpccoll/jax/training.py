# SPDX-License-Identifier: Apache-2.0
"""Gradients, optimizers of optax, and parameters: trees of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.sparse import JAXSparse

from hpccoll import errors
from hpccoll.frontend.gradient_step import GradientStep, Kind
from hpccoll.frontend.groups import is_number_of_groups
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.reducer import check_passes
from hpccoll.frontend.reductions import Average, Op, choose
from hpccoll.frontend.variables import compare_variables
from hpccoll.jax import eager, names
from hpccoll.jax.call import Call
from hpccoll.jax.checks import array, check_options, converted
from hpccoll.jax.operations import allreduce_call, run_all

__all__ = ["DistributedOptimizer", "allreduce_gradients", "broadcast_parameters"]


def _leaves(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The arrays of a tree with their paths as names, and its form."""
    pairs, form = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, JAXSparse))
    paths = [jax.tree_util.keystr(path) for path, _ in pairs]
    return [(path, _at(path, converted, leaf)) for path, (_, leaf) in zip(paths, pairs, strict=True)], form


def allreduce_gradients(
    tree: Any,
    op: Op | None = Average,
    *,
    compression: Any = None,
    groups: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str = "gradient",
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combine the gradients of all ranks, each as soon as it is computed.

    Each gradient is an operation whose name is its path in the tree, so ranks may compute them in any order; small ones
    are fused.

    :param tree: a tree of arrays, the same on all ranks
    :param op: Average (default), Sum, Min, Max or Product
    :param compression: what float32 and float64 values travel as between nodes: Compression.none, .fp16 or .bf16
    :param groups: into how many groups the gradients are put, whose arrays are finished together; None: each alone
    :param prescale_factor: factor of each rank's gradients
    :param postscale_factor: factor of the results
    :param name: what all names begin with; trees of one name in one program match in the order of the program
    :param process_set: the ranks that take part
    :returns: a tree of the same form
    :raises InvalidArgumentError: (a ValueError) an argument is wrong
    :raises MismatchError: (a RuntimeError) the ranks have different groups; they are compared when they are first used
    :raises UnsupportedError: (a ValueError) a gradient is sparse, no array, or of a dtype that has no such reduction
    """
    pairs, form = _leaves(tree)
    check_options(op, compression, process_set)
    _check_groups(groups)
    step = GradientStep(
        name, choose(op), groups=groups, process_set=process_set, prescale=prescale_factor, postscale=postscale_factor,
        key=int,
    )  # fmt: skip
    xs = [_at(path, array, x) for path, x in pairs]
    plan = step.plan(range(len(xs)), [Kind.DENSE] * len(xs), lambda places: [f"{name}{pairs[at][0]}" for at in places])
    calls = []
    for members, call, *_ in plan.sent:
        tensors = [xs[at] for at in members]
        calls.append((allreduce_call(tensors, call, compression), call.name, tensors))
    for sent, results in zip(plan.sent, run_all(calls), strict=True):
        for at, result in zip(sent.members, results, strict=True):
            xs[at] = result
    return form.unflatten(xs)


def _check_groups(groups: Any) -> None:
    if groups is not None and not is_number_of_groups(groups):
        raise errors.InvalidArgumentError(f"groups is {groups!r}: groups should be a positive integer, or None")


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    *,
    backward_passes_per_step: int = 1,
    op: Op | None = Average,
    compression: Any = None,
    groups: int | None = None,
    name: str = "gradient",
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Make an optimizer of optax that sees the gradients of all ranks.

    :param optimizer: an optax.GradientTransformation
    :param backward_passes_per_step: gradients of so many calls of update() are averaged on this rank before they are
        combined and a step is made; the calls between give updates of zero
    :param op: see allreduce_gradients()
    :param compression: see allreduce_gradients()
    :param groups: see allreduce_gradients()
    :param name: see allreduce_gradients()
    :param process_set: the ranks that take part
    :returns: an optax.GradientTransformationExtraArgs
    :raises InvalidArgumentError: (a ValueError) this is no optimizer, it is a DistributedOptimizer already, or an
        argument is wrong
    """
    import optax

    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise errors.InvalidArgumentError(f"optimizer is {optimizer!r}, no optax.GradientTransformation")
    if getattr(optimizer.update, "hpccoll_distributed", False):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    check_passes(backward_passes_per_step)
    check_options(op, compression, process_set)
    _check_groups(groups)
    names.checked(name)
    own = optax.with_extra_args_support(optimizer)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        combined = allreduce_gradients(
            gradients, op, compression=compression, groups=groups, name=name, process_set=process_set
        )
        return own.update(combined, state, params, **extra)

    init, several = own.init, update
    if backward_passes_per_step > 1:
        init, several = _added_up(own, update, backward_passes_per_step)
    vars(several)["hpccoll_distributed"] = True
    return optax.GradientTransformationExtraArgs(init, several)


def _added_up(own: Any, step: Any, passes: int) -> tuple[Any, Any]:
    """Make the functions of an optimizer that calls `step` once per so many passes, with the mean of their gradients.

    optax.MultiSteps calls it in every pass, and would communicate in every pass. As there, gradients of few bits are
    added up in float32, in which a sum of many does not stand still, and the state keeps its dtypes.

    :param own: the optimizer that `step` calls with the gradients of all ranks
    """

    def init(params: Any) -> Any:
        zeros = jax.tree.map(lambda x: jnp.zeros_like(x, jnp.promote_types(x.dtype, jnp.float32)), params)
        return own.init(params), zeros, jnp.zeros((), jnp.int32)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        inner, before, count = state
        total = jax.tree.map(lambda so_far, x: (so_far + x).astype(so_far.dtype), before, gradients)
        mean = jax.tree.map(lambda x, like: (x / passes).astype(jnp.result_type(like)), total, gradients)
        form, _ = jax.eval_shape(lambda: own.update(mean, inner, params, **extra))

        def now() -> Any:
            updates, stepped = step(mean, inner, params, **extra)
            return updates, jax.tree.map(_as_before, inner, stepped), jax.tree.map(jnp.zeros_like, total)

        def later() -> Any:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form), inner, total

        updates, inner, total = jax.lax.cond(count + 1 == passes, now, later)
        return updates, (inner, total, (count + 1) % passes)

    return init, update


def _as_before(before: Any, now: Any) -> Any:
    """Return a new value of an optimizer's state in the dtype of the old one."""
    return now if jnp.result_type(now) == jnp.result_type(before) else now.astype(jnp.result_type(before))


def broadcast_parameters(
    tree: Any, root_rank: int = 0, *, name: str = "parameters", process_set: ProcessSet = global_process_set
) -> Any:
    """Give the root's parameters to all ranks; outside of jit, before the first step.

    :param tree: a tree of arrays: the same form, shapes and dtypes on all ranks
    :param root_rank: global rank of the root
    :param name: what all names begin with
    :param process_set: the ranks that take part
    :returns: a tree of the same form, with the root's values
    :raises MismatchError: the ranks have trees of different forms
    :raises UnsupportedError: (a ValueError) a leaf is no array, as a function in a module of Equinox, of which
        equinox.partition() gives the arrays; or it has a dtype that the library does not know: a key of jax.random, for
        one, of which jax.random.key_data() gives the numbers
    """
    pairs, form = _leaves(tree)
    world = world_of(process_set)
    own = [f"{path} {x.dtype}{list(x.shape)}" for path, x in pairs]
    compare_variables("broadcast_parameters", own, f"{name} of a tree", process_set, root_rank=root_rank)
    root = root_in(process_set, root_rank)
    call = Call("broadcast", "", eager.open_gate(world), world.rank, world.size, root=root)
    results = run_all([(call, f"{name}{path}", [_at(path, array, x)]) for path, x in pairs])
    return form.unflatten([result for (result,) in results])


def _at(path: str, check: Callable[[Any], Any], x: Any) -> Any:
    """Check an array of a tree, before any of them is sent; an error names its path."""
    try:
        return check(x)
    except errors.UnsupportedError as error:
        raise errors.UnsupportedError(f"{path}: {error}") from None

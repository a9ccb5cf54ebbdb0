# SPDX-License-Identifier: Apache-2.0
"""The operations, inside and outside of jit, grad, vmap, scan, while_loop, cond and checkpoint.

Arguments that many of them share:

- `x`: a JAX array, or anything that jax.numpy.asarray() takes. Inside of a trace its shape must be the same on all
  ranks, except where an operation says otherwise.
- `name`: calls with the same name match across ranks, in whatever order each rank makes them. Without a name, calls
  outside of traces match by their order, and calls in a trace by their place in the source. If a program uses a name
  several times, these calls match in the order of the program.
- `process_set`: the ranks that take part; roots and peers are global ranks.

If an argument is wrong on this rank, each operation raises InvalidArgumentError or UnsupportedError (both a
ValueError) before it sends anything. A later failure raises an HpccollError outside of jit. Inside of jit it raises
JAX's JaxRuntimeError, whose text begins with the name of the HpccollError's class.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hpccoll import compression, errors
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.reductions import Average, Op, Sum, choose
from hpccoll.frontend.refused import tells
from hpccoll.jax import eager, names
from hpccoll.jax.call import Call
from hpccoll.jax.checks import array, checked_reduction, received, wire_of
from hpccoll.jax.primitive import bind
from hpccoll.p2p import ANY_TAG

__all__ = [
    "Compression", "allgather", "allreduce", "allreduce_call", "alltoall", "barrier", "broadcast", "exscan", "gather",
    "grouped_allreduce", "recv", "reduce", "reducescatter", "run_all", "scan", "scatter", "send", "sendrecv",
]  # fmt: skip


_tells = functools.partial(tells, name_unnamed=names.unnamed)


class Compression:
    """The dtypes in which float32 and float64 values may travel between nodes."""

    none = None
    fp16 = compression.FP16
    bf16 = compression.BF16


# ---- from arguments to a call ----------------------------------------------------------------------------


def _root(process_set: ProcessSet, rank: Any) -> int:
    if isinstance(rank, jax.core.Tracer):
        raise errors.InvalidArgumentError(f"{rank} is no rank: ranks are known when the program is traced")
    return root_in(process_set, rank)


def _call(operation: str, process_set: ProcessSet, **attributes: Any) -> Call:
    world = world_of(process_set)
    number = eager.open_gate(world)
    return Call(operation, "", number, world.rank, world.size, **attributes)


def _run(call: Call, name: str | None, *xs: Any) -> list[Any]:
    """Run the call now; in a trace, make it a part of the program instead."""
    names.checked(name)
    if not names.tracing(xs):
        return eager.run(call, xs, name)
    return bind(dataclasses.replace(call, name=names.in_trace(call.operation, name)), *xs)


def run_all(calls: Sequence[tuple[Call, str | None, Sequence[Any]]]) -> list[list[Any]]:
    """Run several independent calls: begin all of them, then wait for all of them."""
    if any(names.tracing(xs) for _, _, xs in calls):
        return [
            bind(dataclasses.replace(call, name=names.in_trace(call.operation, name)), *xs) for call, name, xs in calls
        ]
    in_flight = [eager.begin(call, xs, name) for call, name, xs in calls]
    return [operation.wait() for operation in in_flight]


# ---- reductions ------------------------------------------------------------------------------------------


@_tells
def allreduce(
    x: Any,
    op: Op | None = Average,
    *,
    name: str | None = None,
    compression: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combine the arrays of all ranks element by element.

    :param x: the same shape and dtype on all ranks
    :param op: Average (default), Sum, Min, Max or Product
    :param name: matches the calls of different ranks
    :param compression: what float32 and float64 values travel as between nodes: Compression.none, .fp16 or .bf16
    :param prescale_factor: factor of each rank's array
    :param postscale_factor: factor of the result
    :param process_set: the ranks that take part
    :returns: the result, of the shape and dtype of `x`
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
    :raises UnsupportedError: (a ValueError) the reduction of this dtype is not defined, or the dtype is not known
    """
    return _allreduce([array(x)], op, name, compression, prescale_factor, postscale_factor, process_set, False)[0]


@_tells
def grouped_allreduce(
    xs: Sequence[Any],
    op: Op | None = Average,
    *,
    name: str | None = None,
    compression: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Allreduce several arrays, which are agreed, fused and finished together. Other arguments: see allreduce().

    :param xs: as many on all ranks, each with the same shape and dtype
    :returns: the results, in the order of `xs`
    """
    if not len(xs):
        raise errors.InvalidArgumentError("a group has at least one array")
    whole = [array(x) for x in xs]
    return _allreduce(whole, op, name, compression, prescale_factor, postscale_factor, process_set, True)


def _allreduce(
    xs: list[Any], op: Op | None, name: str | None, narrow: Any, prescale: float, postscale: float,
    process_set: ProcessSet, group: bool,
) -> list[Any]:  # fmt: skip
    call = Allreduce(name, choose(op), prescale, postscale, process_set, group=group)
    return _run(allreduce_call(xs, call, narrow), name, *xs)


def allreduce_call(xs: Sequence[Any], given: Allreduce, narrow: Any) -> Call:
    """Check the arguments of an allreduce; return the call, without its name.

    :param narrow: a compression, or None
    """
    codes = {checked_reduction(given.op, x, given.prescale, given.postscale) for x in xs}
    wires = {wire_of(narrow, x) for x in xs}
    if len(wires) > 1:
        raise errors.UnsupportedError("compression of a group whose arrays are only partly float32 or float64")
    return _call(
        "allreduce", given.process_set, reduction=codes.pop(), prescale=float(given.prescale),
        postscale=float(given.postscale), wire=wires.pop(), group=given.group,
    )  # fmt: skip


@_tells
def reduce(
    x: Any,
    *,
    op: Op | None = Average,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combine the arrays of all ranks element by element, for the root.

    :param x: the same shape and dtype on all ranks
    :param op: Average (default), Sum, Min, Max or Product
    :param root_rank: global rank of the root
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the result on the root; None elsewhere
    """
    x = array(x)
    code = checked_reduction(op, x, 1.0, 1.0)
    results = _run(_call("reduce", process_set, reduction=code, root=_root(process_set, root_rank)), name, x)
    return results[0] if results else None


@_tells
def reducescatter(
    x: Any,
    op: Op | None = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combine the arrays of all ranks; each rank gets its share of the rows.

    :param x: the same shape and dtype on all ranks. Each rank gets n // size of n rows, and the first n % size ranks
        get one more
    :param op: Average (default), Sum, Min, Max or Product
    :param name: matches the calls of different ranks
    :param prescale_factor: factor of each rank's array
    :param postscale_factor: factor of the result
    :param process_set: the ranks that take part
    :returns: this rank's rows of the result
    """
    x = _with_rows("reducescatter", array(x))
    code = checked_reduction(op, x, prescale_factor, postscale_factor)
    call = _call(
        "reducescatter", process_set, reduction=code, prescale=float(prescale_factor), postscale=float(postscale_factor)
    )
    return _run(call, name, x)[0]


@_tells
def scan(x: Any, op: Op | None = None, *, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Combine the arrays of the ranks up to this one, in their order.

    :param x: the same shape and dtype on all ranks
    :param op: Sum (default), Min, Max or Product
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the result, of the shape and dtype of `x`
    """
    return _prefix("scan", x, op, name, process_set)


@_tells
def exscan(
    x: Any, op: Op | None = None, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Combine the arrays of the ranks before this one, in their order. The arguments are those of scan().

    :returns: the result; on rank 0 the neutral element: zero for Sum, the largest value for Min
    """
    return _prefix("exscan", x, op, name, process_set)


def _prefix(operation: str, x: Any, op: Op | None, name: str | None, process_set: ProcessSet) -> Any:
    chosen = Sum if op is None else choose(op)
    if chosen is Average:
        raise errors.InvalidArgumentError(f"{operation} has no Average: the ranks have sums of different length")
    x = array(x)
    return _run(_call(operation, process_set, reduction=checked_reduction(chosen, x, 1.0, 1.0)), name, x)[0]


# ---- rows ------------------------------------------------------------------------------------------------


def _with_rows(operation: str, x: Any) -> Any:
    if x.ndim == 0:
        raise errors.InvalidArgumentError(f"{operation} needs at least one dimension, x has none")
    return x


def _counts(what: str, counts: Any, size: int) -> tuple[int, ...] | None:
    if counts is None:
        return None
    try:
        checked = tuple(int(n) for n in np.asarray(counts, np.int64))
    except (TypeError, ValueError, jax.errors.JAXTypeError) as error:
        raise errors.InvalidArgumentError(f"{what} is {counts!r}: {size} integers, known when traced") from error
    if len(checked) != size or min(checked) < 0:
        raise errors.InvalidArgumentError(f"{what} {list(checked)} are not {size} counts, one per rank")
    return checked


@_tells
def allgather(
    x: Any,
    *,
    name: str | None = None,
    rows: Sequence[int] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate the arrays of all ranks along their first dimension.

    :param x: all dimensions but the first are the same on all ranks; an array without dimensions counts as one row
    :param name: matches the calls of different ranks
    :param rows: the number of rows of each rank; needed in a trace if these numbers differ
    :param process_set: the ranks that take part
    :returns: the rows of all ranks, in the order of the ranks
    """
    x = array(x)
    x = x.reshape(1) if x.ndim == 0 else x
    call = _call("allgather", process_set, rows=_counts("rows", rows, world_of(process_set).size))
    _check_own_rows(call, x)
    return _run(call, name, x)[0]


def _check_own_rows(call: Call, x: Any) -> None:
    if call.rows is not None and call.rows[call.rank] != x.shape[0]:
        raise errors.InvalidArgumentError(
            f"rows say {call.rows[call.rank]} for rank {call.rank}, whose array has {x.shape[0]}"
        )


@_tells
def gather(
    x: Any,
    root_rank: int,
    *,
    name: str | None = None,
    rows: Sequence[int] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate the arrays of all ranks along their first dimension, for the root. See allgather().

    :returns: the rows of all ranks on the root; None elsewhere
    """
    x = array(x)
    x = x.reshape(1) if x.ndim == 0 else x
    counts = _counts("rows", rows, world_of(process_set).size)
    call = _call("gather", process_set, rows=counts, root=_root(process_set, root_rank))
    _check_own_rows(call, x)
    results = _run(call, name, x)
    return results[0] if results else None


@_tells
def alltoall(
    x: Any,
    splits: Sequence[int] | None = None,
    *,
    name: str | None = None,
    rows: Sequence[int] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send a part of the rows to each rank.

    :param x: all dimensions but the first are the same on all ranks
    :param splits: how many rows go to each rank, in order; default: as many to each
    :param name: matches the calls of different ranks
    :param rows: the number of rows that come from each rank; needed in a trace with `splits`
    :param process_set: the ranks that take part
    :returns: the rows received, in the order of the ranks
    """
    x = _with_rows("alltoall", array(x))
    size = world_of(process_set).size
    call = _call("alltoall", process_set, splits=_counts("splits", splits, size), rows=_counts("rows", rows, size))
    if call.splits is None and x.shape[0] % size:
        raise errors.InvalidArgumentError(f"alltoall without splits: {size} ranks do not divide {x.shape[0]} rows")
    if call.splits is not None and sum(call.splits) != x.shape[0]:
        raise errors.InvalidArgumentError(f"splits {list(call.splits)} have not the sum {x.shape[0]} (the rows of x)")
    if call.splits is not None and call.rows is None and names.tracing([x]):
        raise errors.InvalidArgumentError(
            "alltoall with splits in a trace: give rows, how many rows come from each rank, because XLA must know the "
            "shape of the result"
        )
    return _run(call, name, x)[0]


@_tells
def broadcast(x: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Give the root's array to all ranks.

    :param x: the values on the root; the same shape and dtype on the other ranks
    :param root_rank: global rank of the root
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the root's values
    """
    return _run(_call("broadcast", process_set, root=_root(process_set, root_rank)), name, array(x))[0]


@_tells
def scatter(
    x: Any,
    root_rank: int,
    splits: Sequence[int] | None = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give each rank a part of the root's rows.

    :param x: the values on the root; the same shape and dtype on the other ranks
    :param root_rank: global rank of the root
    :param splits: how many rows go to each rank, the same on all ranks; default: as even as can be, the first ranks
        get one more
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the rows of this rank
    """
    x = _with_rows("scatter", array(x))
    size = world_of(process_set).size
    call = _call("scatter", process_set, root=_root(process_set, root_rank), splits=_counts("splits", splits, size))
    if call.splits is not None and sum(call.splits) != x.shape[0]:
        raise errors.InvalidArgumentError(f"splits {list(call.splits)} have not the sum {x.shape[0]} (the rows of x)")
    return _run(call, name, x)[0]


# ---- messages and barriers, which keep their order -------------------------------------------------------


@_tells
def barrier(*, name: str | None = None, process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called it. A program keeps the order of its messages and barriers.

    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    """
    _run(_call("barrier", process_set), name)


def _tag(tag: Any) -> int:
    if not isinstance(tag, int) or not 0 <= tag < 1 << 32:
        raise errors.InvalidArgumentError(f"tag is {tag!r}: a tag is a number from 0 to {(1 << 32) - 1}")
    return tag


def send(x: Any, dest: int, *, tag: int = 0, process_set: ProcessSet = global_process_set) -> None:
    """Send an array to one rank, which must call recv(). A program keeps the order of its messages and barriers.

    :param x: an array with the shape and dtype that the receiver expects
    :param dest: global rank of the receiver
    :param tag: distinguishes messages between two ranks
    :param process_set: a set with both ranks
    """
    _run(_call("send", process_set, root=_root(process_set, dest), tag=_tag(tag)), None, array(x))


def recv(like: Any, source: int, *, tag: int = ANY_TAG, process_set: ProcessSet = global_process_set) -> Any:
    """Receive an array from one rank. A program keeps the order of its messages and barriers.

    :param like: an array, or a jax.ShapeDtypeStruct, with the shape and dtype of the message
    :param source: global rank of the sender
    :param tag: receive a message with this tag; default: the oldest message with any tag
    :param process_set: a set with both ranks
    :returns: the array
    """
    number = tag if tag == ANY_TAG else _tag(tag)
    call = _call("recv", process_set, root=_root(process_set, source), tag=number, received=received(like))
    return _run(call, None)[0]


def sendrecv(
    x: Any,
    dest: int,
    source: int,
    *,
    like: Any = None,
    tag: int = 0,
    source_tag: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send an array to one rank and receive one from another at the same time, as in a halo exchange.

    A program keeps the order of its messages and barriers.

    :param x: the array to send
    :param dest: global rank of its receiver
    :param source: global rank that sends the result
    :param like: an array, or a jax.ShapeDtypeStruct, with the shape and dtype of the result; default: `x`
    :param tag: the tag of the message that is sent
    :param source_tag: the tag of the message that is received; default: `tag`
    :param process_set: a set with all these ranks
    :returns: the received array
    """
    x = array(x)
    call = _call(
        "sendrecv", process_set, root=_root(process_set, dest), source=_root(process_set, source), tag=_tag(tag),
        source_tag=_tag(tag if source_tag is None else source_tag),
        received=received(x if like is None else like),
    )  # fmt: skip
    return _run(call, None, x)[0]

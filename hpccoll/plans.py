# SPDX-License-Identifier: Apache-2.0
"""Persistent operations: agreed once, then started again and again without a control message.

`NAME_init` takes the arguments of the operation NAME and returns a `Plan`, after all ranks of the World have agreed on
it. `plan.start()` begins the operation on the values that its arrays have then, `plan.wait()` ends it, `plan()` does
both. Names and semantics are those of MPI's persistent operations (MPI 4.0, sections 3.9 and 6.13):

- All ranks call `NAME_init` of the collective operations in the same order; `send_init` and `recv_init` concern one
  rank alone, and their messages meet those of `send` and `recv`, too.
- Each rank starts a plan as often as the others, in any order with other plans and operations. The n-th start of one
  rank belongs to the n-th start of the others. A start without its partners is reported like any other long wait.
- The arrays are those of `NAME_init` at every start. Until the start is over they belong to the library.
- A plan has memory of its own until `plan.free()`, or the end of a `with` block.

A rank that has joined (`join`) starts nothing, so no plan of the World is over until it has come back. Arrays lie in
host memory. The examples run on two ranks.
"""

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, overload

from hpccoll import _core, agreements, bootstrap, errors, objects
from hpccoll.array_types import Array, Op, T, Values
from hpccoll.compression import Compression
from hpccoll.outside import check_inside
from hpccoll.p2p import ANY_SOURCE, ANY_TAG
from hpccoll.reductions import SUM
from hpccoll.rendezvous import agreed

__all__ = ["Persistent", "Plan", "start_all", "wait_all"]

Handle = _core.Handle
Plan = _core.Plan


class Persistent:
    """The functions that make plans, as methods of a World."""

    core: _core.Set
    base: bootstrap.Base

    def allreduce_init(
        self,
        x: Values,
        op: Op = SUM,
        *,
        out: Values | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        compression: Compression | None = None,
    ) -> Plan:
        """Make a persistent `allreduce`; all ranks call this together.

            >>> x = np.ones(2)
            >>> with hpccoll.allreduce_init(x, out=x) as plan:
            ...     for _ in range(3):
            ...         total = plan()
            >>> x
            array([8., 8.])

        :param x: an array in host memory with the same shape and dtype on all ranks, which every start reads; or a list
            of arrays, which is a group
        :param op: one of the reductions
        :param out: takes the results; `x` itself: in place; None: a new array, the same one at every start
        :param prescale: as of `allreduce`
        :param postscale: as of `allreduce`
        :param compression: as of `allreduce`
        :returns: the plan, whose `wait()` returns `out`
        :raises MismatchError: the ranks' arguments differ; one text on all ranks
        :raises UnsupportedError: `op` or a factor is not defined for the dtype, or the arrays are on a GPU
        :raises InvalidArgumentError: an argument is wrong on this rank
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        return _init("allreduce", x, out, self, op=op, prescale=prescale, postscale=postscale, compression=compression)

    def reduce_init(
        self,
        x: Values,
        *,
        op: Op = SUM,
        root: int = 0,
        out: Values | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Plan:
        """Make a persistent `reduce`; all ranks call this together.

        :param x: as of `allreduce_init`
        :param op: one of the reductions
        :param root: the rank that gets the results
        :param out: on the root, takes the results; None: a new array, the same one at every start
        :param prescale: as of `reduce`
        :param postscale: as of `reduce`
        :returns: the plan, whose `wait()` returns `out` on the root and None on the other ranks
        :raises HpccollError: as `allreduce_init`
        """
        return _init("reduce", x, out, self, op=op, root=root, prescale=prescale, postscale=postscale)

    def broadcast_init(self, x: Values, root: int = 0, *, out: Values | None = None) -> Plan:
        """Make a persistent `broadcast`; all ranks call this together.

        :param x: the root's values; on the other ranks an array of the same shape and dtype
        :param root: the rank whose array is given
        :param out: takes the results; `x` itself: in place; None: a new array, the same one at every start
        :returns: the plan, whose `wait()` returns `out`
        :raises HpccollError: as `allreduce_init`
        """
        return _init("broadcast", x, out, self, root=root)

    def allgather_init(self, x: Values, *, out: Values | None = None) -> Plan:
        """Make a persistent `allgather`; all ranks call this together.

        :param x: an array of at least one dimension; the number of its rows may differ between ranks
        :param out: takes the results; None: a new array, the same one at every start
        :returns: the plan, whose `wait()` returns the rows of all ranks
        :raises ResultSizeError: `out` does not have as many rows as all ranks together; one text on all ranks
        :raises HpccollError: as `allreduce_init`
        """
        return _init("allgather", x, out, self)

    def reducescatter_init(
        self,
        x: Values,
        op: Op = SUM,
        *,
        out: Values | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Plan:
        """Make a persistent `reducescatter`; all ranks call this together.

        :param x: an array of at least one dimension with the same shape and dtype on all ranks
        :param op: one of the reductions
        :param out: takes this rank's rows of the results; None: a new array, the same one at every start
        :param prescale: as of `reducescatter`
        :param postscale: as of `reducescatter`
        :returns: the plan, whose `wait()` returns this rank's rows
        :raises HpccollError: as `allreduce_init`
        """
        return _init("reducescatter", x, out, self, op=op, prescale=prescale, postscale=postscale)

    def alltoall_init(self, x: Values, splits: Sequence[int] | None = None, *, out: Values | None = None) -> Plan:
        """Make a persistent `alltoall`; all ranks call this together.

        :param x: an array whose first `splits[0]` rows go to rank 0, the next `splits[1]` to rank 1, and so on
        :param splits: rows for each rank; None: the same number for all. They hold for every start
        :param out: takes the rows that come; None: a new array, the same one at every start
        :returns: the plan, whose `wait()` returns (the rows that come, how many come from each rank)
        :raises ResultSizeError: `out` does not have as many rows as come; one text on all ranks
        :raises HpccollError: as `allreduce_init`
        """
        return _init("alltoall", x, out, self, splits=splits)

    def gather_init(self, x: Values, root: int = 0, *, out: Values | None = None) -> Plan:
        """Make a persistent `gather`; all ranks call this together.

        :param x: an array, whose number of rows may differ between ranks
        :param root: the rank that gets the rows
        :param out: on the root, takes the results; None: a new array, the same one at every start
        :returns: the plan, whose `wait()` returns the rows of all ranks on the root and None on the other ranks
        :raises ResultSizeError: `out` does not have as many rows as all ranks together; one text on all ranks
        :raises HpccollError: as `allreduce_init`
        """
        return _init("gather", x, out, self, root=root)

    def scatter_init(
        self,
        x: Values | None,
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        out: Values | None = None,
    ) -> Plan:
        """Make a persistent `scatter`; all ranks call this together.

        :param x: as of `scatter`; the values that the root's array has at each start are given
        :param root: the rank whose rows are given
        :param splits: as of `scatter`. They hold for every start
        :param out: takes this rank's rows; None: a new array, the same one at every start
        :returns: the plan, whose `wait()` returns this rank's rows
        :raises ResultSizeError: `out` does not have this rank's rows; one text on all ranks
        :raises HpccollError: as `allreduce_init`
        """
        return _init("scatter", out if x is None else x, out, self, root=root, splits=splits)

    def scan_init(
        self,
        x: Values,
        op: Op = SUM,
        *,
        out: Values | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Plan:
        """Make a persistent `scan`; all ranks call this together.

        :param x: as of `allreduce_init`
        :param op: one of the reductions but for AVERAGE
        :param out: takes the results; `x` itself: in place; None: a new array, the same one at every start
        :param prescale: as of `scan`
        :param postscale: as of `scan`
        :returns: the plan, whose `wait()` returns the reduction over this rank and those before it
        :raises HpccollError: as `allreduce_init`
        """
        return _init("scan", x, out, self, op=op, prescale=prescale, postscale=postscale)

    def exscan_init(
        self,
        x: Values,
        op: Op = SUM,
        *,
        out: Values | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Plan:
        """Make a persistent `exscan`; all ranks call this together.

        :param x: as of `allreduce_init`
        :param op: one of the reductions but for AVERAGE
        :param out: takes the results; `x` itself: in place; None: a new array, the same one at every start
        :param prescale: as of `exscan`
        :param postscale: as of `exscan`
        :returns: the plan, whose `wait()` returns the reduction over the ranks before this one; on rank 0 as of
            `exscan`
        :raises HpccollError: as `allreduce_init`
        """
        return _init("exscan", x, out, self, op=op, prescale=prescale, postscale=postscale)

    def barrier_init(self) -> Plan:
        """Make a persistent `barrier`; all ranks call this together.

        :returns: the plan, whose `wait()` returns None when all ranks have started it
        :raises MismatchError: a rank makes another plan
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        return _init("barrier", None, None, self)

    def send_init(self, x: Values, dest: int, *, tag: int = 0) -> Plan:
        """Make a persistent `send`. Other ranks do not take part.

            >>> x, y = np.zeros(3), np.zeros(3)
            >>> other = 1 - hpccoll.rank()
            >>> plans = [hpccoll.recv_init(y, other), hpccoll.send_init(x, other)]
            >>> for step in range(3):
            ...     x[:] = step
            ...     hpccoll.start_all(plans)
            ...     _ = hpccoll.wait_all(plans)
            >>> y
            array([2., 2., 2.])

        :param x: an array in host memory of any shape and dtype, whose values at each start are sent
        :param dest: the rank that receives
        :param tag: as of `send`
        :returns: the plan, whose `wait()` returns None when `x` may be changed
        :raises UnsupportedError: `x` is on a GPU
        :raises InvalidArgumentError: `dest` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        return self.core.plan_message(False, x, dest, tag, _name())

    def recv_init(self, x: Array, source: int = ANY_SOURCE, *, tag: int = ANY_TAG) -> Plan:
        """Make a persistent `recv`. Other ranks do not take part.

        :param x: a writable array in host memory, which takes the message of each start
        :param source: the rank that sends; ANY_SOURCE takes a message from any rank
        :param tag: as of `recv`
        :returns: the plan, whose `wait()` returns the rank that sent
        :raises UnsupportedError: `x` is on a GPU
        :raises InvalidArgumentError: `x` cannot be written, or `source` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        return self.core.plan_message(True, x, source, tag, _name())


def start_all(plans: Iterable[Plan]) -> None:
    """Start several plans as one, in their order (MPI_Startall).

    :param plans: plans that are not started; the order of the others' starts does not matter
    :raises HpccollError: as `Plan.start`; those before the plan that raises it are started
    """
    _core.start_all(plans)


@overload
def wait_all(begun: Iterable[Handle[T]]) -> list[T]: ...
@overload
def wait_all(begun: Iterable[Handle | Plan]) -> list[Any]: ...
def wait_all(begun: Iterable[Handle | Plan]) -> list[Any]:
    """Wait until all that these stand for is over (MPI_Waitall).

        >>> handles = [hpccoll.allreduce_async(np.full(2, i)) for i in range(3)]
        >>> [int(total[0]) for total in hpccoll.wait_all(handles)]
        [0, 2, 4]

    All Handles are waited for at once, so ranks may list them in different orders.

    :param begun: Handles, of any Worlds, and plans; a plan that is not started is over
    :returns: what the `wait()` of each returns, in their order
    :raises HpccollError: as `Handle.wait` and `Plan.wait`: the first error in their order, when all are over
    :raises TypeError: one of them is neither a Handle nor a Plan
    """
    return _core.wait_all(begun)


# ---- agreement ----------------------------------------------------------------------------------------------

_made = itertools.count(1)


def _name() -> str:
    """The name of a plan in reports and errors."""
    return f"plan {next(_made)}"


def _init(operation: str, x: Any, out: Any, world: Persistent, **options: Any) -> Plan:
    """Agree on a plan with all ranks of the World, and make it: for a group it combines a plan per dtype."""
    check_inside(world.core, f"{operation}_init")
    with agreements.whole():
        return _agree_on_all(operation, x, out, world, options)


def _agree_on_all(operation: str, x: Any, out: Any, world: Persistent, options: dict[str, Any]) -> Plan:
    whole = _propose(world, operation, x, out, options)
    dtypes = whole.dtypes()
    if len(set(dtypes)) < 2:
        return _agree(world, operation, whole, whole)
    places = [[i for i, other in enumerate(dtypes) if other == dtype] for dtype in dict.fromkeys(dtypes)]
    parts = []
    for place in places:
        some = [x[i] for i in place]
        to = None if out is None else some if out is x else [out[i] for i in place]
        parts.append(_agree(world, operation, _propose(world, operation, some, to, options), whole))
    return _core.group_plan(parts, places)


def _propose(world: Persistent, operation: str, x: Any, out: Any, options: dict[str, Any]) -> Plan:
    """Read and check the arguments of a plan. If this rank refuses them, it tells the other ranks."""
    try:
        return world.core.plan(operation, x, out, "plan", **options)
    except Exception as error:
        with contextlib.suppress(errors.HpccollError):
            _core.refuse_plan(world.core, operation, f"{type(error).__name__}: {error}")
        raise


def _agree(world: Persistent, operation: str, plan: Plan, whole: Plan) -> Plan:
    """Make a plan with all ranks, which compare `whole`: the group that it is a part of, or the plan itself."""
    own = world.core
    plan.agree(whole)
    if plan.has_check():
        _check_function(own, operation, plan)
    nbytes = plan.segment_bytes()
    segment = _core.members_segment(own, plan.name.replace(" ", "-"), nbytes) if nbytes else None
    agreed(lambda text: objects.compare(own, text, "hpccoll.agreed", None), lambda: plan.build(segment))
    return plan


def _check_function(own: _core.Set, operation: str, plan: Plan) -> None:
    """Check the function of a UserReduction. A rank on which it raises tells the others, which would wait for it."""
    failed = None
    try:
        plan.check_function()
    except Exception as error:  # noqa: BLE001 - the program's function may raise any exception
        failed = error
    said = objects.compare(own, f"{type(failed).__name__}: {failed}" if failed else "", "hpccoll.checked", None)
    if failed:
        raise failed
    for i, why in enumerate(said.values):
        if why:
            raise errors.MismatchError(f"{operation}_init: rank {said.first(i)} has refused this call: {why}")

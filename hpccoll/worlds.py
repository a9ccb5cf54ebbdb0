# SPDX-License-Identifier: Apache-2.0
"""A World is a communicator: ranks that act together. A process can hold several."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Self, cast

import numpy as np

from hpccoll import (
    _core,
    agreements,
    bootstrap,
    colors,
    config,
    default_rendezvous,
    ending,
    errors,
    launched,
    objects,
    set_agreement,
    shared,
    topology,
)
from hpccoll.collectives import Collectives
from hpccoll.compared import Compared
from hpccoll.from_c import ForC
from hpccoll.observe import timeline
from hpccoll.outside import Outside, check_inside
from hpccoll.p2p import Messages
from hpccoll.plans import Persistent
from hpccoll.prefix import Prefix
from hpccoll.rendezvous import Rendezvous
from hpccoll.rooted import Rooted
from hpccoll.text import say

__all__ = ["World", "from_parts", "subset_among"]

STOP_AT_LEAST = 5.0
"""Least seconds for the ranks to agree on the end of the log, also after the limit of the wait for them."""

Compare = Callable[[str, Any], Compared[Any]]
"""Takes a name of the subject and this rank's value; returns the values of all ranks."""


class World(Collectives, Rooted, Prefix, Messages, Persistent, ForC):
    """A communicator: all ranks of an MPI communicator, or some ranks of another World (a process set).

    The ranks of a World are numbered from 0; the arguments `root`, `dest` and `source`, the property `rank` and the
    error messages mean these numbers.

        >>> with hpccoll.World() as world:
        ...     total = world.allreduce(np.ones(1))
        >>> total
        array([2.])

    A World that was made of some ranks is empty on the others, as MPI.COMM_NULL is: its truth value is False, `size` is
    0, `rank` is None, and every operation on it raises InvalidArgumentError.
    """

    base: bootstrap.Base
    """The shared state of the process sets of one World; for the library only."""
    core: _core.Set
    """The process set of this World; for the library alone."""
    _ending: threading.Lock
    """Held by the thread that ends the World, while others wait for it."""
    _is_ended_by: int | None = None

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make a World that has no ranks yet."""
        self = super().__new__(cls)
        self._ending = threading.Lock()
        return self

    def __init__(self, comm: Any = None, *, rendezvous: Rendezvous | None = None, **knobs: Any) -> None:
        """Make a World; all ranks of `comm` (or of `rendezvous`) call this together.

        :param comm: an mpi4py communicator (default: MPI.COMM_WORLD, or this process alone where there is no MPI)
        :param rendezvous: in place of a communicator, such as a hpccoll.rendezvous.StoreRendezvous; then no MPI is used
        :param knobs: fields of `hpccoll.config.Config`, which take precedence over the environment
        :raises StartError: ranks are missing, settings differ, a knob of another rank is wrong, or shared memory or MPI
            failed
        :raises InvalidArgumentError: a knob is unknown or out of its bounds
        """
        if comm is not None and rendezvous is not None:
            raise errors.InvalidArgumentError("a World is made of a communicator or of a rendezvous, not of both")
        settings, wrong = config.read_or_default(**knobs)
        self.base, self.core = bootstrap.make(rendezvous or default_rendezvous.choose(comm, settings), settings, wrong)
        ending.watch(self)

    # ---- ranks --------------------------------------------------------------------------------------

    @property
    def rank(self) -> int | Any:
        """The number of this process in the World, from 0; None where the World is empty."""
        return self.core.rank

    @property
    def size(self) -> int:
        """The number of ranks in the World; 0 where it is empty."""
        return self.core.size

    def __bool__(self) -> bool:
        """Say whether this process is in the World."""
        return self.core.size > 0

    def __contains__(self, rank: object) -> bool:
        """Say whether the World has a rank of this number."""
        return rank in range(self.core.size)

    def __reduce__(self) -> str:
        """Refuse to be pickled or copied."""
        raise TypeError(
            "a World cannot be pickled or copied: it belongs to this process, as a communicator of MPI does; another "
            "process makes its own"
        )

    def __dir__(self) -> list[str]:
        """Name what is there for programs."""
        return [name for name in super().__dir__() if name not in ("base", "core")]

    @property
    def _nodes(self) -> list[int]:
        """The node of each rank of this World."""
        return [self.base.loop.node_of[m] for m in self.core.members]

    @property
    def local_rank(self) -> int | Any:
        """The number of this process among the World's ranks on its node, from 0; None where the World is empty."""
        return self._nodes[: self.rank].count(self._nodes[self.rank]) if self else None

    @property
    def local_size(self) -> int:
        """The number of ranks of the World on this node; 0 where it is empty."""
        return self._nodes.count(self._nodes[self.rank]) if self else 0

    @property
    def _peers_across(self) -> list[int]:
        """The ranks with the local rank of this process; each node has one at most."""
        ranks, mine = dict[int, list[int]](), self.local_rank
        for rank, node in enumerate(self._nodes):
            ranks.setdefault(node, []).append(rank)
        return sorted(those[mine] for those in ranks.values() if len(those) > mine)

    @property
    def cross_rank(self) -> int | Any:
        """The number of this process among the ranks with its local rank, from 0; None where the World is empty."""
        return self._peers_across.index(self.rank) if self else None

    @property
    def cross_size(self) -> int:
        """The number of ranks with the local rank of this process; the number of nodes, if these are all alike."""
        return len(self._peers_across)

    # ---- process sets ---------------------------------------------------------------------------------

    def subset(self, ranks: Iterable[int]) -> World:
        """Make a World of some ranks of this one; all ranks of this one call it with the same `ranks`.

            >>> first = hpccoll.world().subset([0])
            >>> if first:
            ...     assert (first.size, first.rank) == (1, 0)
            ... else:
            ...     assert (first.size, first.rank) == (0, None)

        :param ranks: ranks of this World, without repetition; their order gives the new ranks
        :returns: the new World; an empty one on the ranks that are not in it
        :raises MismatchError: the ranks gave different `ranks`
        :raises InvalidArgumentError: `ranks` is empty, repeats a rank, or has a number that is no rank; or several
            threads of a rank call this at once: one at a time may, in an order that is the same on all ranks
        :raises StartError: this rank is in too many process sets, or ranks have not come (HPCCOLL_START_TIMEOUT)
        """
        chosen = colors.numbers(ranks)
        are_ranks = bool(chosen) and len(set(chosen) & set(range(self.size))) == len(chosen)
        with set_agreement.turn(self, "subset") as crowded:
            row = colors.place(chosen if are_ranks else (), self.rank)
            made = _make_sets(set_agreement.Agreement(self, "subset", chosen, crowded), row)
            if isinstance(made, str):
                objects.same("subset: rank 0 says", self._compare("subset", chosen))
        if isinstance(made, str) or not are_ranks:
            raise errors.InvalidArgumentError(f"subset of {chosen}: needs different ranks from 0 to {self.size - 1}")
        return made

    def split(self, color: int | None, key: int = 0) -> World:
        """Make a World for each color; all ranks of this World call it together.

            >>> alone = hpccoll.world().split(color=hpccoll.rank())
            >>> alone.size
            1

        :param color: a whole number: the ranks of one color get a World; None or MPI.UNDEFINED: this rank gets none
        :param key: the new ranks are ordered by (key, rank)
        :returns: the new World of this rank; an empty one if it gets none
        :raises InvalidArgumentError: a rank gave a color or key that is no whole number; or several threads, as for
            `subset`
        :raises StartError: this rank is in too many process sets, or ranks have not come (HPCCOLL_START_TIMEOUT)
        """
        said = colors.said(color, key)
        with set_agreement.turn(self, "split") as crowded:
            agreement = set_agreement.Agreement(self, "split", None, crowded)
            made = _make_sets(agreement, colors.row(said))
            if made == "unfit":
                made = _make_sets(agreement, colors.ranked(self._compare("split, values", said))[self.rank])
        assert isinstance(made, World)
        return made

    def cart(self, dims: Iterable[int], periods: bool | Iterable[bool] = False) -> topology.Cart:
        """Put the ranks on a grid, in row-major order; all ranks of this World call it together (MPI_Cart_create).

        The Cart has a World of its own, which is one of the process sets that a rank can be in. Its ranks are those of
        this World with the same numbers.

            >>> cart = hpccoll.world().cart([0, 1], periods=True)
            >>> cart.dims, cart.size
            ((2, 1), 2)

        :param dims: the extent of each dimension; 0: chosen, as `dims_create` does
        :param periods: do the ends of a dimension touch? For all dimensions, or for each one
        :returns: the grid; on ranks for which there is no place, an empty one, which is False
        :raises MismatchError: the ranks gave different grids
        :raises InvalidArgumentError: the grid has more places than the World has ranks, or a dimension without extent
        :raises StartError: this rank is in too many process sets, or ranks have not come (HPCCOLL_START_TIMEOUT)
        """
        check_inside(self.core, "cart")
        extents, around, refused = topology.check_grid(self.size, dims, periods)
        asked = [str(refused) if refused else extents, around]
        with set_agreement.turn(self, "cart") as crowded:
            row = colors.place(() if refused else range(prod(extents)), self.rank)
            made = _make_sets(set_agreement.Agreement(self, "cart", asked, crowded), row)
            if isinstance(made, str):
                objects.same("cart: rank 0 says (dims, periods)", self._compare("cart", asked))
        if refused:
            raise refused
        assert isinstance(made, World)
        return topology.Cart(made, extents, around)

    def shared_array(self, shape: int | Iterable[int], dtype: Any = float, *, read_only: bool = False) -> np.ndarray:
        """Make an array of zeros in memory that the ranks of a node share; all ranks of this World call it together.

        There is one per node, however many ranks the node has: for tables too large to have per rank. What a rank
        writes the others of its node see after a `barrier()`. The memory is free when all ranks of the node have
        dropped the array, or have ended, in whatever way.

            >>> world = hpccoll.world()
            >>> table = world.shared_array((100, 3))
            >>> if world.local_rank == 0:
            ...     table[...] = 7.0
            >>> hpccoll.barrier()
            >>> float(table[99, 2])
            7.0

        :param shape: of the array, the same on all ranks
        :param dtype: any dtype without Python objects
        :param read_only: only the first rank of each node can write; the memory of the others is protected
        :returns: a NumPy array
        :raises OutOfMemoryError: a node has no memory for it; on all ranks, with the host and the bytes
        :raises MismatchError: the ranks gave different arguments
        :raises InvalidArgumentError: there is no such shape or dtype
        :raises UnsupportedError: a dtype with Python objects
        """
        extents = colors.numbers([shape] if isinstance(shape, int | np.integer) else shape)
        check_inside(self.core, "shared_array")
        who = f"rank {self.rank} (host {platform.node()}, pid {os.getpid()})"
        with agreements.whole():
            return shared.make(self._compare, who, self.rank, self._nodes, extents, dtype, read_only)

    def _compare(self, what: str, value: Any) -> Compared[Any]:
        """Compare `value` with that of the other ranks, by operations of this World under a name of their own."""
        check_inside(self.core, what)
        return objects.compare(self.core, value, f"hpccoll.{what}", self.base.settings.start_timeout)

    # ---- life -------------------------------------------------------------------------------------------

    def progress(self) -> None:
        """Advance whatever is in flight, without blocking.

        A program needs this only where no background thread drives (the line at the start says so) and this rank does
        not wait for anything: between an asynchronous call and the wait for it.
        """
        self.base.loop.progress()

    def stats(self) -> dict[str, int]:
        """Give the counters of this rank since the World was made. Process sets made from it count together with it.

        Requests and batches:

        - `requests` (number): operations that this rank has asked for
        - `shortcuts` (number): of them small blocking calls without a name that the ranks did not agree on
        - `counted` (number): of them blocking calls without a name on which the ranks agreed by their count
        - `batches` (number): batches that have run
        - `cached_batches` (number): batches of requests that were all agreed before
        - `fused_requests` (number): requests in those batches; divided by `batches`, the mean size of a batch
        - `payload_bytes` (bytes): arrays in those batches
        - `plan_starts` (number): starts of plans by this rank; those of messages count as messages, too
        - `p2p_ops` (number): point-to-point messages that this rank has sent or received
        - `p2p_bytes` (bytes): arrays in those messages

        Agreement, the control plane:

        - `messages_up` (number): control messages to the parent in the tree
        - `messages_down` (number): control messages to children
        - `bytes_up` (bytes): size of the messages to the parent
        - `bytes_down` (bytes): size of the messages to children
        - `control_messages_local` (number): control messages to ranks on this node
        - `control_bytes_local` (bytes): their size
        - `control_messages_net` (number): control messages to other nodes
        - `control_bytes_net` (bytes): their size
        - `entries` (number): entries of the log that this rank has applied
        - `cached_commits` (number): requests that were agreed by their slot's bit
        - `first_commits` (number): requests that were announced with their signature
        - `mismatches` (number): requests that the ranks disagreed about
        - `evictions` (number): slots that were taken from one signature for another
        - `conflicts` (number): slots that were freed because ranks raised different signatures of one name

        Data; those of shortcuts and plans count among `net_...` only:

        - `packed_bytes` (bytes): copied from arrays into the node's shared memory
        - `reduced_bytes` (bytes): results of this rank's reductions inside the node
        - `spread_bytes` (bytes): copied from the node's shared memory into arrays
        - `net_sent_bytes` (bytes): sent to other nodes
        - `net_sent_messages` (number): messages to other nodes
        - `net_received_bytes` (bytes): received from other nodes

        Time:

        - `waited_ns` (ns): callers were blocked, summed over the threads that called; what calls without an agreement
          and plans of few bytes take before they need the driver (mostly all of their time) is left out
        - `in_flight_ns` (ns): at least one batch was running
        - `wakes` (number): the background thread was woken
        - `sleeps` (number): a driver went to sleep because nothing moved

            >>> before = hpccoll.world().stats()["requests"]
            >>> hpccoll.barrier()
            >>> hpccoll.world().stats()["requests"] - before
            1

        :returns: the counters by name
        :raises ShutDownError: the World has been shut down
        """
        return self.base.loop.stats()

    def lost_ranks(self) -> dict[int, str]:
        """Say which ranks were lost when the World broke, as far as this rank knows: the net may know of several.

        :returns: how each was lost, by its rank in the whole World
        """
        return self.base.loop.lost(self.base.rendezvous.size)

    def shutdown(self, *, wait: bool = True) -> None:
        """End the World: what all ranks have agreed on is finished, anything else ends with ShutDownError.

        The call waits until all ranks have made it, for `HPCCOLL_STOP_TIMEOUT` seconds at most, because the end of one
        rank's World is the end for all ranks, and of the process sets made from it. If another rank asks for an
        operation of all ranks meanwhile, that rank gets a ShutDownError at once, which names the rank that has left. A
        second call does nothing.

        A World that broke is shut down as well. If no call has raised the error yet, because nobody waited for what was
        in flight, or because a rank was lost during this call, then this one does, after it has ended the World.

        :param wait: False: end the World now, without waiting for the other ranks
        :raises RecoverableError: the World broke, and the program has not been told
        """
        if self._is_ended_by == threading.get_ident():  # a signal handler, in the call that it interrupted
            return
        with self._ending:
            self._is_ended_by = threading.get_ident()
            try:
                self._end(wait)
            finally:
                self._is_ended_by = None

    def _end(self, wait: bool) -> None:
        loop, timeout = self.base.loop, self.base.settings.stop_timeout
        if self.core.closed or loop.closed:
            return
        told, limit = loop.told, time.monotonic() + timeout
        if wait:
            self._await_others(timeout)
        stopped = self.core.stop(max(STOP_AT_LEAST, limit - time.monotonic()))
        failure = loop.failure()
        if self.core.number == 0:
            self._free()
        elif stopped and not loop.forked:
            self.core.remove()
            _core.give_set_number_back(loop, self.core.number)
        if failure and not told:
            loop.told = True
            raise failure

    def _await_others(self, timeout: float) -> None:
        """Until all ranks have called shutdown(), or it is known that not all of them will."""
        try:
            begun = self.base.shutdown if self.core.number == 0 else None
            (begun or ending.begin_shutdown(self.core, waits=True)).wait(timeout)
        except TimeoutError:
            say(
                f"hpccoll: rank {self.rank}: shutdown: other ranks have not called it within {timeout:g} s "
                "(HPCCOLL_STOP_TIMEOUT): this rank ends without them"
            )
        except errors.HpccollError:
            pass  # the loop knows what broke; an end that another rank has brought about is the end

    def _free(self) -> None:
        ending.forget(self)
        self.base.failure = self.base.loop.failure()
        timeline.stop(self)
        if self.base.tuner is not None:
            self.base.tuner.close()
        self.base.loop.close()
        if self.base.loop.forked:
            return
        launched.world_ended(self.base.loop.process_ended)
        if self.base.failure:
            ending.ends_broken(self.base.rendezvous)
        else:
            self.base.rendezvous.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        try:
            self.shutdown(wait=error is None)
        except errors.RecoverableError as lost:
            if error is None:
                raise
            error.add_note(f"hpccoll: {type(lost).__name__}: {lost}")  # the program's own error is what it raises

    def __repr__(self) -> str:
        core: Any = self.core
        if isinstance(core, Outside):
            return f"<hpccoll.World: empty, {core.text}>"
        state = " (shut down)" if self.core.closed else ""
        return f"<hpccoll.World: rank {self.rank} of {self.size}{state}>"


def from_parts(base: bootstrap.Base, own: _core.Set) -> World:
    """Make a World of what bootstrap.make() gave."""
    world = World.__new__(World)
    world.base, world.core = base, own
    if world:
        ending.watch(world)
    return world


def _make_sets(agreement: set_agreement.Agreement, row: list[int]) -> World | str:
    """Make process sets of ranks of a World. `row`: of this rank, as colors.row() makes it.

    :returns: the set of this rank, or an empty World; "differ" if the arguments do, "unfit" if a row is
    """
    made = agreement.reach(row)
    if isinstance(made, str):
        return made
    world = agreement.world
    number, generation, members, inside = made
    if not members:
        return from_parts(world.base, cast("_core.Set", Outside(world.rank, inside)))
    return from_parts(world.base, _core.Set(world.base.loop, number, generation, members))


def subset_among(parent: World, ranks: Iterable[int], compare: Compare) -> World:
    """Make a World of some ranks of `parent`; only these call it, because they can exchange values without it.

    :param ranks: as for World.subset(); this rank is one of them
    :param compare: called by all of them with the same word; says what each of them says, in the order of `ranks`
    :returns: the new World
    :raises StartError: this rank is in too many process sets
    """
    members = [int(r) for r in ranks]

    def exchange(_: str, data: bytes) -> bytes:
        return bytes.fromhex("".join(compare("set", data.hex())))

    agreement = set_agreement.Agreement(parent, "subset", members, ranks=members, exchange=exchange)
    made = _make_sets(agreement, colors.place(members, parent.rank))
    if isinstance(made, str):
        objects.same(f"subset: rank {members[0]} says", compare("ranks", members))
    assert isinstance(made, World)
    return made

# SPDX-License-Identifier: Apache-2.0
"""Halo exchange: sends the sides of an n-dimensional array to the neighbours on a grid, and receives their sides.

Corners need no extra messages: the sides of a dimension contain the halos of the other dimensions, and the halos of
earlier dimensions have arrived before. So an exchange takes 2 messages per dimension instead of one for each of the
3^n - 1 neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from operator import index
from typing import Any, Self

import numpy as np

from hpccoll import _core, arrays, bootstrap, errors, objects

__all__ = ["PROC_NULL", "Face", "Halo", "Side", "check_array", "exchange", "faces", "sides", "tag_of", "widths_of"]

PROC_NULL = -2
SIDES = 128
"""Tags of one exchange: two for each dimension that an array can have."""

PAIR_BYTES = 64 << 10
"""The largest face that is exchanged in shared memory; larger ones are messages, which are copied as often."""

Shift = Callable[[int], tuple[int, int]]
"""Gives the neighbours below and above in a dimension."""


def tag_of(exchange: int, side: int) -> int:
    """Return the tag of the message from a side, in the exchange of this number."""
    return exchange * SIDES + side


@dataclass(slots=True)
class Face:
    """One neighbour: the side to send, and the halo to receive into."""

    peer: int
    sendtag: int
    recvtag: int
    send: np.ndarray
    recv: np.ndarray


def exchange(core: _core.Set, stages: Sequence[Sequence[Face]]) -> None:
    """Exchange the faces of each stage at the same time, one stage after the other.

    An error ends no stage early, nor the stages after it: the neighbours there have no part in it, and would wait.

    :param core: the ranks' process set
    :raises ResultSizeError: the neighbour's side has another size
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    failures = []
    for stage in stages:
        try:
            core.exchange([(f.peer, f.sendtag, f.recvtag, f.send, f.recv) for f in stage if f.peer != PROC_NULL])
        except errors.HpccollError as error:
            failures.append(error)
    if failures:
        raise failures[0]


class _Transfer:
    """A face of a plan, with contiguous buffers for strided sides."""

    __slots__ = ("face", "incoming", "outgoing")

    def __init__(self, face: Face) -> None:
        self.face = face
        self.outgoing = face.send if face.send.flags.c_contiguous else np.empty(face.send.shape, face.send.dtype)
        self.incoming = face.recv if face.recv.flags.c_contiguous else np.empty(face.recv.shape, face.recv.dtype)

    def receive(self, waits: bool) -> None:
        """Begin the receive, before any face is sent. `waits`: the caller waits next."""

    def pack(self) -> None:
        if self.outgoing is not self.face.send:
            np.copyto(self.outgoing, self.face.send)

    def unpack(self) -> None:
        if self.incoming is not self.face.recv:
            np.copyto(self.face.recv, self.incoming)


class _Planned(_Transfer):
    """A face whose two messages are plans."""

    __slots__ = ("receiver", "sender")

    def __init__(self, core: _core.Set, face: Face) -> None:
        super().__init__(face)
        name = f"halo of rank {face.peer}"
        self.receiver = core.plan_message(True, self.incoming, face.peer, face.recvtag, name, library=True)
        self.sender = core.plan_message(False, self.outgoing, face.peer, face.sendtag, name, library=True)

    def receive(self, waits: bool) -> None:
        _core.start_all((self.receiver,), waits)

    def send(self, waits: bool) -> None:
        self.pack()
        _core.start_all((self.sender,), waits)

    def end(self) -> None:
        self.receiver.wait()
        self.sender.wait()
        self.unpack()

    def free(self) -> None:
        self.receiver.free()
        self.sender.free()


class _Paired(_Transfer):
    """A face whose neighbour is on this node: both sides are one plan, an exchange in shared memory."""

    __slots__ = ("plan",)

    def __init__(self, core: _core.Set, face: Face, segment: _core.Segment, offset: int) -> None:
        super().__init__(face)
        give, take = (x.reshape(-1).view(np.uint8) for x in (self.outgoing, self.incoming))
        self.plan = core.plan_pair(give, take, face.peer, f"halo exchange with rank {face.peer}", segment, offset)

    def send(self, waits: bool) -> None:
        self.pack()
        _core.start_all((self.plan,), waits)

    def end(self) -> None:
        self.plan.wait()
        self.unpack()

    def free(self) -> None:
        self.plan.free()


class Halo:
    """A plan of a halo exchange: `halo()` runs it, or `halo.start()`, work that needs no halo, `halo.wait()`.

    Faces between ranks of one node are exchanged in shared memory of their own, others by messages that are plans
    (`send_init`, `recv_init`), so that a start allocates nothing.
    """

    def __init__(
        self,
        base: bootstrap.Base,
        core: _core.Set,
        stages: Sequence[Sequence[Face]],
        said: str,
        refused: errors.HpccollError | None,
    ) -> None:
        """Compare the arguments of all ranks, and allocate.

        :param base: of the Worlds that `core` is one of
        :param said: the text that must be the same on all ranks
        :param refused: this rank's reason to refuse its arguments, which is in `said`; no other rank waits for it then
        :raises MismatchError: something differs, on all ranks alike
        :raises InvalidArgumentError: all ranks refuse their arguments
        """
        all_faces = list(chain.from_iterable(stages))
        sides = [(face.peer, face.sendtag, face.send.shape) for face in all_faces]
        wanted = [(face.peer, face.recvtag, face.recv.shape) for face in all_faces]
        itemsize = max((face.send.itemsize for face in all_faces), default=0)
        everybody = objects.allgather(core, (said, sides, wanted, itemsize, base.generation), None)
        _compare([report[:3] for report in everybody])
        if refused:
            raise refused
        generation = base.next_generation(report[4] for report in everybody)
        self._places, nbytes = _pairs(core, everybody)
        self._segment = None
        if nbytes:
            self._segment = _core.members_segment(core, f"halo-{generation}", nbytes)
        self._stages = [[self._transfer(core, face) for face in stage if face.peer != PROC_NULL] for stage in stages]
        self._started = False

    def _transfer(self, core: _core.Set, face: Face) -> _Planned | _Paired:
        offset = self._places.get((core.rank, face.sendtag))
        if offset is None or self._segment is None:
            return _Planned(core, face)
        return _Paired(core, face, self._segment, offset)

    def start(self) -> None:
        """Begin to send and receive. Until `wait()` the sides may not be written, and the halo not be used.

        The first stage only: the others begin in `wait()`. A background thread, if there is one, moves the messages.

        :raises InvalidArgumentError: it is started already
        """
        self._check_over()
        self._begin(0, waits=False)
        self._started = True

    def wait(self) -> None:
        """Wait until the halo is filled, which is done here for all stages but the first.

        :raises InvalidArgumentError: it was not started
        :raises ResultSizeError: the neighbour's side has another size
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        if not self._started:
            raise errors.InvalidArgumentError("a halo exchange was not started: call start() before wait()")
        self._started = False
        self._end_from(0)

    def __call__(self) -> None:
        """Do both, without waking the background thread.

        :raises HpccollError: as `start` and `wait`
        """
        self._check_over()
        self._begin(0, waits=True)
        self._end_from(0)

    def _check_over(self) -> None:
        if self._started:
            raise errors.InvalidArgumentError("a halo exchange was started twice: call wait() before the next start()")

    def _begin(self, at: int, *, waits: bool) -> None:
        """Begin a stage. `waits`: the caller waits for it next."""
        for stage in self._stages[at : at + 1]:
            for transfer in stage:
                transfer.receive(waits)
            for transfer in stage:
                transfer.send(waits)

    def _end_from(self, at: int) -> None:
        """End a stage that has begun, and run the later stages."""
        while at < len(self._stages):
            for transfer in self._stages[at]:
                transfer.end()
            at += 1
            self._begin(at, waits=True)

    def free(self) -> None:
        """Give the memory back. The end of a `with` block does so, too, as does the end of the Cart.

        :raises InvalidArgumentError: it is started
        """
        if self._started:
            raise errors.InvalidArgumentError("a halo exchange is under way: call wait() before free()")
        for stage in self._stages:
            for transfer in stage:
                transfer.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._started:
            self.free()


def _pairs(core: _core.Set, everybody: list[Any]) -> tuple[dict[tuple[int, int], int], int]:
    """Place the faces between ranks of a node in its segment: the offset of each, by (rank, sendtag).

    :returns: the same on all ranks of a node; and the bytes of the largest segment of a node
    """
    nodes = [core.loop.node_of[member] for member in core.members]
    shapes = {(rank, tag): shape for rank, (_, sides, *_) in enumerate(everybody) for _, tag, shape in sides}
    places: dict[tuple[int, int], int] = {}
    ends = dict.fromkeys(nodes, 0)
    for rank, (_, sides, _, itemsize, _) in enumerate(everybody):
        for peer, tag, shape in sides:
            one, other, nbytes = (rank, tag), (peer, tag ^ 1), prod(shape) * itemsize  # tag_of(): both sides in turn
            if peer <= rank or nodes[peer] != nodes[rank] or shapes.get(other) != shape or not 0 < nbytes <= PAIR_BYTES:
                continue
            places[one] = places[other] = ends[nodes[rank]]
            ends[nodes[rank]] += _core.pair_bytes(nbytes)
    return places, max(ends.values())


def _compare(everybody: list[Any]) -> None:
    """Raise MismatchError if a rank sends a face that its neighbour does not expect."""
    sent = {(rank, peer, tag): shape for rank, (_, sides, _) in enumerate(everybody) for peer, tag, shape in sides}
    for rank, (said, _, _) in enumerate(everybody):
        if said != everybody[0][0]:
            raise errors.MismatchError(
                f"halo_exchange: rank 0 has (dtype, width, corners) {everybody[0][0]}, rank {rank} has {said}"
            )
    for rank, (_, _, wanted) in enumerate(everybody):
        for peer, tag, shape in wanted:
            if peer != PROC_NULL and sent.get((peer, rank, tag)) != shape:
                raise errors.MismatchError(
                    f"halo_exchange: rank {rank} has a halo of shape {shape} for rank {peer}, whose side there has "
                    f"shape {sent.get((peer, rank, tag))}"
                )


@dataclass(slots=True)
class Side:
    """The places of one neighbour's faces in an array."""

    peer: int
    sendtag: int
    recvtag: int
    send: tuple[slice, ...]
    recv: tuple[slice, ...]

    def of(self, array: np.ndarray) -> Face:
        """Give the views of an array."""
        return Face(self.peer, self.sendtag, self.recvtag, array[self.send], array[self.recv])


def sides(
    shape: Sequence[int], width: int | Sequence[int], corners: bool, shift: Shift, ndim: int, number: int
) -> list[list[Side]]:
    """List the sides of arrays of a shape whose first `ndim` dimensions are divided, in stages.

    :raises InvalidArgumentError: such an array has no such halo
    """
    widths = _widths(shape, width, ndim)
    inside = [slice(w, n - w) for w, n in zip(widths, shape, strict=False)]
    stages = []
    for d, w in enumerate(widths):
        if w == 0:
            continue
        n, below, above = shape[d], *shift(d)
        rest = [slice(None)] * ndim if corners else inside

        def at(first: int, d: int = d, w: int = w, rest: list[slice] = rest) -> tuple[slice, ...]:
            return (*rest[:d], slice(first, first + w), *rest[d + 1 :])

        down, up = tag_of(number, 2 * d), tag_of(number, 2 * d + 1)
        stages.append([Side(below, down, up, at(w), at(0)), Side(above, up, down, at(n - 2 * w), at(n - w))])
    return stages if corners else [list(chain.from_iterable(stages))]


def faces(array: np.ndarray, stages: Sequence[Sequence[Side]]) -> list[list[Face]]:
    """Give the faces of an array on its sides."""
    return [[side.of(array) for side in stage] for stage in stages]


def check_array(array: np.ndarray, ndim: int) -> None:
    """Raise an error unless this is an array that a halo exchange on `ndim` dimensions can fill.

    :raises InvalidArgumentError: it has fewer dimensions, or is read-only
    :raises UnsupportedError: its elements are references to Python objects
    """
    if not isinstance(array, np.ndarray) or array.ndim < ndim:
        raise errors.InvalidArgumentError(
            f"array is {arrays.name_of(array)} of {getattr(array, 'ndim', 0)} dimensions: a halo exchange on {ndim} "
            f"takes a NumPy array of at least {ndim}"
        )
    if not array.flags.writeable:
        raise errors.InvalidArgumentError("array is read-only: a halo exchange writes its halo")
    arrays.has_code(array.dtype)


def widths_of(width: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Give the width of a halo for each dimension, in Python's own numbers.

    :param width: for all dimensions, or for each one
    :raises InvalidArgumentError: it is no whole number, and not several
    """
    try:
        return (index(width),) * ndim if isinstance(width, int | np.integer) else tuple(map(index, width))
    except TypeError:
        raise errors.InvalidArgumentError(f"width {width!r} of a halo: a whole number, or one per dimension") from None


def _widths(shape: Sequence[int], width: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    widths = widths_of(width, ndim)
    if len(widths) != ndim or any(w < 0 or (w and n < 3 * w) for w, n in zip(widths, shape, strict=False)):
        raise errors.InvalidArgumentError(
            f"an array of shape {tuple(shape)} has no halo of width {width} in {ndim} dimensions: a divided dimension "
            "has the halo on both sides, and at least as many cells inside as one of them"
        )
    return widths

# SPDX-License-Identifier: Apache-2.0
"""The choices for an operation between nodes: algorithm, stages, chunks, messages and bytes, by nodes and size.

The C code chooses (`hpccoll._core`); messages and bytes follow from its choice.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from hpccoll import _core
from hpccoll.tools.bench import sizes
from hpccoll.tools.model import chunks, messages
from hpccoll.tools.model.messages import BETA, GAMMA, SIZES, Round, ceil_div
from hpccoll.tools.model.predict import Layout, wire_dtype

MESSAGE_BYTES = 60 << 10
"""Bytes of a message that the net does not cut: between machines, over MPI or UCX without RDMA."""


@dataclass(frozen=True)
class Answer:
    """One size on one number of nodes. Messages and bytes are those of the ranks that send, or receive, the most."""

    operation: str
    nodes: int
    bytes: int
    how: str
    dtype: str
    """The dtype between nodes."""
    rails: int
    chunks: int
    """The chunks; for a broadcast down a tree, its segments."""
    shard: int
    """Bytes of a rail's part of a chunk on the wire."""
    messages: int
    sent: int
    messages_in: int
    received: int
    seconds: float
    """By the model with which the C code chooses: of one chunk of an allreduce, of the whole of the others."""


Traffic = tuple[int, int, int, int]
"""Messages and elements that the busiest sender sends; messages and elements that the busiest receiver receives."""


def _busiest(rounds: list[list[Round]]) -> Traffic:
    """Return the traffic of the busiest of some members. Messages without elements are not sent."""

    def most(member_messages: Callable[[Round], tuple[tuple[int, int], ...]]) -> tuple[int, int]:
        members = [[n for one in member for _, n in member_messages(one) if n] for member in rounds]
        busiest = max(members, key=lambda elements: (sum(elements), len(elements)))
        return len(busiest), sum(busiest)

    return *most(lambda one: one.sends), *most(lambda one: one.receives)


def _members(n: int, radices: tuple[int, ...], extra: int) -> set[int]:
    """Return members of each kind: the root, the last ones, and those of the first group that do more than others.

    In a ring one of the last members leaves out the shortest parts.
    """
    near = {radices[0] - 1, radices[0] if extra else 0} if radices else set()
    return {0, 1, n - 1, n - 2, max(0, n - 3), *near}


def _traffic(cut: chunks.Cut, count: int, wire: str, of_shard: Callable[[int], Traffic]) -> Traffic:
    """Return the traffic of a batch, whose last chunk may be shorter; in turns, of the first rank."""
    full = of_shard(cut.shard)
    if cut.turns:
        driven = ceil_div(cut.chunks, cut.rails)
        return full[0] * driven, full[1] * driven, full[2] * driven, full[3] * driven
    before, rest = cut.chunks - 1, count - (cut.chunks - 1) * cut.chunk
    last = of_shard(chunks.shard_of(rest, wire, cut.rails, cut.turns))
    return (full[0] * before + last[0], full[1] * before + last[1],
            full[2] * before + last[2], full[3] * before + last[3])  # fmt: skip


def _in_pipeline(operation: str, where: Layout, nbytes: int, how: str, dtype: str, cut: chunks.Cut, all_chunks: Traffic,
                 seconds: float) -> Answer:  # fmt: skip
    size, turns = SIZES[dtype], ", in turns" if cut.turns else ""
    return Answer(operation, where.nodes, nbytes, f"{how}{turns}", dtype, cut.rails, cut.chunks, cut.shard * size,
                  all_chunks[0], all_chunks[1] * size, all_chunks[2], all_chunks[3] * size, seconds)  # fmt: skip


def _allreduce(where: Layout, dtype: str, nbytes: int, _: int) -> Answer:
    wire, count = wire_dtype(dtype, where), max(1, nbytes // SIZES[dtype])
    cut = chunks.cut(count, dtype, wire, where.per_node, where.rails, where.chunk_bytes, where.nodes)

    def choose(elements: int) -> messages.Choice:
        return messages.choose(where.nodes, elements, wire, where.algorithm, where.latency_bytes, where.exact_sums)

    chosen = choose(cut.shard)

    def of_shard(elements: int) -> Traffic:
        how = choose(elements)
        members = _members(where.nodes, how.radices, how.extra)
        return _busiest([messages.rounds(how, where.nodes, me, elements) for me in members])

    traffic, how = _traffic(cut, count, wire, of_shard), f"{chosen}{', whole' if chosen.whole else ''}"
    return _in_pipeline("allreduce", where, nbytes, how, chosen.dtype, cut, traffic, chosen.seconds)


def _broadcast(where: Layout, dtype: str, nbytes: int, message_bytes: int) -> Answer:
    n, size, count = where.nodes, SIZES[dtype], max(1, nbytes // SIZES[dtype])
    form, radices, extra, segment, seconds = _core.net_broadcast(
        n, count * size, message_bytes, where.latency_bytes * BETA, BETA, GAMMA
    )
    if form == "stages":
        cut = chunks.cut(count, dtype, dtype, where.per_node, where.rails, where.chunk_bytes, n)
        members = _members(n, radices, extra)

        def of_shard(elements: int) -> Traffic:
            return _busiest([messages.broadcast_rounds(radices, extra, me, elements) for me in members])

        traffic = _traffic(cut, count, dtype, of_shard)
        return _in_pipeline("broadcast", where, nbytes, messages.stages(radices, extra), dtype, cut, traffic, seconds)
    segments = ceil_div(count * size, segment)
    _, children = _core.net_tree(n, 0, max(1.0, count * size / segment))
    return Answer("broadcast", n, nbytes, _tree(children), dtype, 1, segments, min(segment, count * size),
                  children * segments, children * count * size, segments, count * size, seconds)  # fmt: skip


def _tree(children: int) -> str:
    return "chain" if children == 1 else "binomial tree"


def _reduce(where: Layout, dtype: str, nbytes: int, _: int) -> Answer:
    n, count = where.nodes, max(1, nbytes // SIZES[dtype])
    rails = chunks.rails_of(where.per_node, where.rails)
    form, radices, extra, shard_bytes, kind, seconds = _core.net_reduce(
        n, count, dtype, rails, where.exact_sums, where.latency_bytes * BETA, BETA, GAMMA
    )
    cut = chunks.cut(count, dtype, dtype, where.per_node, rails, where.chunk_bytes, n, shard_bytes, form != "stages")
    _, children = (0, n - 1) if form == "at once" else _core.net_tree(n, 0, float(cut.chunks))

    def of_shard(elements: int) -> Traffic:
        if form != "stages":
            return 1, elements, children, children * elements
        return _busiest([messages.reduce_rounds(radices, extra, me, elements) for me in _members(n, radices, extra)])

    how = {"stages": messages.stages(radices, extra), "at once": "all to the root"}.get(form, _tree(children))
    return _in_pipeline("reduce", where, nbytes, how, kind, cut, _traffic(cut, count, dtype, of_shard), seconds)


OPERATIONS = {"allreduce": _allreduce, "broadcast": _broadcast, "reduce": _reduce}


def answer(
    where: Layout, dtype: str, nbytes: int, operation: str = "allreduce", message_bytes: int = MESSAGE_BYTES
) -> Answer:
    """Ask the C code for its choice, and count the messages and bytes that follow from it.

    :param nbytes: of the array of a rank
    :param operation: a key of OPERATIONS
    :param message_bytes: of a message that the net does not cut; a broadcast's segments have as many at most
    """
    return OPERATIONS[operation](where, dtype, nbytes, message_bytes)


def table(answers: list[Answer]) -> str:
    """Return the answers as text."""
    columns = ("size", "rails", "chunks", "shard", "out", "sent", "in", "received", "model(us)")
    lines = [f"{'operation':<9} {'nodes':>6} " + " ".join(f"{name:>8}" for name in columns) + "  how"]
    for a in answers:
        cells = (sizes.short(a.bytes), a.rails, a.chunks, sizes.short(a.shard), a.messages, sizes.short(a.sent),
                 a.messages_in, sizes.short(a.received), math.ceil(1e6 * a.seconds))  # fmt: skip
        numbers = " ".join(f"{cell:>8}" for cell in cells)
        lines.append(f"{a.operation:<9} {a.nodes:>6} {numbers}  {a.how}; {a.dtype} travels")
    return "\n".join(
        [
            *lines,
            "# out, sent; in, received: messages and bytes of the rank that sends, or receives, the most;",
            "# model: the time by which the C code chooses, of a chunk of an allreduce, of a whole broadcast or reduce",
        ]
    )

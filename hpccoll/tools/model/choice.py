# SPDX-License-Identifier: Apache-2.0
"""The choices for an allreduce between nodes: algorithm, stages, chunks, messages and bytes, by nodes and size."""

from __future__ import annotations

from dataclasses import dataclass

from hpccoll.tools.bench import sizes
from hpccoll.tools.model import chunks, messages
from hpccoll.tools.model.messages import SIZES
from hpccoll.tools.model.predict import Layout, wire_dtype


@dataclass(frozen=True)
class Answer:
    """One size on one number of nodes. Messages and bytes are those that a rail's busiest rank sends."""

    nodes: int
    bytes: int
    how: str
    dtype: str
    """The dtype between nodes."""
    rails: int
    chunks: int
    shard: int
    """Bytes of a rail's part of a chunk on the wire."""
    messages: int
    sent: int


def answer(where: Layout, dtype: str, nbytes: int) -> Answer:
    """Ask the C code for its choice, and count the messages and bytes that follow from it."""
    wire, count = wire_dtype(dtype, where), max(1, nbytes // SIZES[dtype])
    cut = chunks.cut(count, dtype, wire, where.per_node, where.rails, where.chunk_bytes, where.nodes)
    chosen = messages.choose(where.nodes, cut.shard, wire, where.algorithm, where.latency_bytes, where.exact_sums)
    busiest = max(
        (messages.rounds(chosen, where.nodes, me, cut.shard) for me in {0, chosen.radices[0] if chosen.extra else 0}),
        key=lambda rounds: sum(elements for one in rounds for _, elements in one.sends),
    )
    driven = messages.ceil_div(cut.chunks, cut.rails) if cut.turns else cut.chunks
    sends = [elements for one in busiest for _, elements in one.sends if elements]
    form = (", whole" if chosen.whole else "") + (", in turns" if cut.turns else "")
    size = SIZES[chosen.dtype]
    return Answer(where.nodes, nbytes, f"{chosen}{form}", chosen.dtype, cut.rails, cut.chunks, cut.shard * size,
                  len(sends) * driven, sum(sends) * size * driven)  # fmt: skip


def table(answers: list[Answer]) -> str:
    """Return the answers as text."""
    lines = [f"{'nodes':>6} {'size':>7} {'rails':>5} {'chunks':>6} {'shard':>7} {'messages':>8} {'sent':>8}  how"]
    for a in answers:
        numbers = f"{a.nodes:>6} {sizes.short(a.bytes):>7} {a.rails:>5} {a.chunks:>6} {sizes.short(a.shard):>7}"
        lines.append(f"{numbers} {a.messages:>8} {sizes.short(a.sent):>8}  {a.how}; {a.dtype} travels")
    lines.append(
        "# messages, and bytes sent, of the busiest rank that drives the network; all chunks as long as the first"
    )
    return "\n".join(lines)

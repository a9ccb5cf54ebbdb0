# SPDX-License-Identifier: Apache-2.0
"""Predicts seconds from parameters: of an agreement, an allreduce, or a step of training, on any number of nodes.

LogGP (Alexandrov et al. 1995) per level: the messages of a round are under way together, so a round costs one message
that others wait for (latency and overhead), and the overhead of a processor for each further one; and a gap per byte.
Overlapping work counts once: an allreduce takes as long as its busiest part (the link, the ranks' copies and sums, or
the rounds of all chunks divided by the chunks in flight), plus the time of the first chunk before that part.
"""

import dataclasses
from dataclasses import dataclass

from hpccoll.tools.model import agreement, chunks, messages, startup
from hpccoll.tools.model.messages import SIZES, ceil_div

FUSION_THRESHOLD, RAISE_BYTES, RAISE_WINDOW = 16 << 20, 4 << 20, 0.002


@dataclass(frozen=True)
class Parameters:
    """The costs of a machine's levels, in seconds."""

    hop: float = 1e-6
    """A control message inside a node."""
    edge: float = 5e-6
    """A control message between nodes: its latency, and the overheads of its sender and its receiver."""
    batch: float = 2e-6
    """A batch, besides its messages and bytes."""
    touch: float = 1e-10
    """A byte that a rank packs, reduces or copies out."""
    alpha: float = 5e-6
    """A message of data between nodes: its latency, and the overheads of its sender and its receiver."""
    overhead: float = 1e-6
    """The processor's time for each further message between nodes that comes together with another."""
    beta: float = 1e-10
    """A byte on the link of a node, in one direction."""
    start: float = 1e-2
    """The constant part of a rank's computing in init()."""
    member: float = 1e-6
    """A rank's computing in init() per rank of the job."""


NAMES = tuple(field.name for field in dataclasses.fields(Parameters))


@dataclass(frozen=True)
class Layout:
    """The placement of the ranks, and the knobs that matter."""

    nodes: int
    per_node: int
    fanout: int = agreement.FANOUT
    algorithm: str = "auto"
    rails: int = 0
    chunk_bytes: int = 0
    wire: str = "none"
    latency_bytes: int = messages.LATENCY_BYTES
    exact_sums: bool = False


def agree(p: Parameters, where: Layout) -> float:
    """Seconds of one agreement on requests that are cached: up the tree and down."""
    path = agreement.path(where.nodes, where.per_node, where.fanout)
    return 2 * (path.inside * p.hop + path.between * p.edge + path.further * p.overhead)


def init_computes(p: Parameters, ranks: int) -> float:
    """Processor seconds of one rank in `init()`, without MPI's, as `hpccoll bench startup` measures them."""
    return p.start + p.member * ranks


def init(p: Parameters, where: Layout) -> float:
    """Seconds of `init()`, from the moment when all ranks have called it.

    The time of the launcher, the imports and MPI_Init is not included.
    """
    counted = startup.start(where.nodes, where.per_node)
    waits = counted.inside * p.hop + counted.between * p.edge
    wire = counted.received * where.per_node * p.beta if where.nodes > 1 else 0.0
    return init_computes(p, where.nodes * where.per_node) + waits + wire


def wire_dtype(dtype: str, where: Layout) -> str:
    """Return the dtype between nodes."""
    narrow = {"fp16": "float16", "bf16": "bfloat16"}.get(where.wire)
    return narrow if narrow and dtype in ("float32", "float64") else dtype


@dataclass(frozen=True)
class Work:
    """The time of a number of elements on each level, in seconds."""

    node: float
    """Copies, sums and further messages of the busiest rank."""
    link: float
    latency: float
    """Rounds of messages between nodes that wait for one another."""


def work(p: Parameters, where: Layout, dtype: str, cut: chunks.Cut, length: int) -> Work:
    """Return the time of `length` elements of one chunk."""
    size, wire = SIZES[dtype], wire_dtype(dtype, where)
    copied = length * size * (3 - 1 / where.per_node if where.per_node > 1 else 1)
    shard = length if cut.turns else min(cut.shard, ceil_div(length, cut.rails))
    shards, drivers = (1, cut.rails) if cut.turns else (cut.rails, 1)
    choice = messages.choose(where.nodes, shard, wire, where.algorithm, where.latency_bytes, where.exact_sums)
    load = messages.load(choice, where.nodes, shard)
    return Work(
        p.touch * copied + (p.touch * load.summed + p.overhead * load.further) / drivers,
        p.beta * load.incast * load.nbytes * shards,
        p.alpha * load.rounds,
    )


def reduce_batch(p: Parameters, where: Layout, dtype: str, count: int) -> float:
    """Seconds of one batch, from its agreement to the last result."""
    if where.nodes == 1:
        g = where.per_node
        return p.batch + p.touch * count * SIZES[dtype] * ((3 - 2 / g) if g > 1 else 1)
    cut = chunks.cut(
        count, dtype, wire_dtype(dtype, where), where.per_node, where.rails, where.chunk_bytes, where.nodes
    )
    full = work(p, where, dtype, cut, min(cut.chunk, count))
    rest = count - (cut.chunks - 1) * cut.chunk
    last = full if rest == cut.chunk else work(p, where, dtype, cut, rest)
    before = cut.chunks - 1
    totals = (
        before * full.node + last.node, before * full.link + last.link, before * full.latency + last.latency,
    )  # fmt: skip
    first = full if cut.chunks > 1 else last
    alone = first.node + first.link + first.latency
    under_way = min(cut.depth, cut.chunks)
    busiest = max(totals[0], totals[1], sum(totals) / under_way)
    ahead = alone - max(first.node, first.link, alone / under_way)
    return p.batch + busiest + ahead + p.touch * SIZES[dtype] * out_together(cut, count)


def out_together(cut: chunks.Cut, count: int) -> int:
    """Elements that a rank copies out after the last message: the chunks of one turn share the link, and end together.

    The last chunk's are part of its time alone.
    """
    return (min(cut.rails, cut.chunks) - 1) * min(cut.chunk, count) if cut.turns else 0


def allreduce(p: Parameters, where: Layout, dtype: str, nbytes: int) -> float:
    """Seconds of one blocking allreduce whose request is cached."""
    return agree(p, where) + reduce_batch(p, where, dtype, max(1, nbytes // SIZES[dtype]))


@dataclass(frozen=True)
class Step:
    """A step of data-parallel training, in seconds."""

    seconds: float
    exposed: float
    """Communication that the computing does not hide."""
    agreements: int
    batches: int


def step(
    p: Parameters, where: Layout, gradients: list[tuple[int, float]], compute: float, dtype: str = "float32"
) -> Step:
    """Replay one step: gradients are raised by the rules R1 to R3, agreed, fused, and reduced one batch after another.

    :param gradients: elements, and the seconds after which each is ready, in that order
    """
    groups = raised(gradients, compute, SIZES[dtype])
    agreeing, free, batches = agree(p, where), 0.0, 0
    for moment, elements in groups:
        for count in fused(elements, FUSION_THRESHOLD // SIZES[dtype]):
            free = max(free, moment + agreeing) + reduce_batch(p, where, dtype, count)
            batches += 1
    seconds = max(compute, free)
    return Step(seconds, seconds - compute, len(groups), batches)


def raised(gradients: list[tuple[int, float]], compute: float, size: int) -> list[tuple[float, list[int]]]:
    """Return the times at which requests are raised together, and the elements of each request."""
    found: list[tuple[float, list[int]]] = []
    pending: list[int] = []
    deadline = 0.0
    for elements, ready in gradients:
        if pending and ready >= deadline:
            found.append((deadline, pending))
            pending = []
        deadline = deadline if pending else ready + RAISE_WINDOW
        pending.append(elements)
        if sum(pending) * size >= RAISE_BYTES:
            found.append((ready, pending))
            pending = []
    if pending:
        found.append((min(deadline, compute), pending))
    return found


def fused(elements: list[int], most: int) -> list[int]:
    """Return the batches of one entry of the log: elements of each."""
    batches: list[int] = []
    for count in elements:
        if batches and batches[-1] + count <= most:
            batches[-1] += count
        else:
            batches.append(count)
    return batches

# SPDX-License-Identifier: Apache-2.0
"""Messages and bytes of docs/algorithms.md, counted among real ranks: 4 nodes of 2.

tests/tools/model/test_choice.py counts those of allreduce, broadcast and reduce.
"""

from collections.abc import Callable

import numpy as np
import pytest

from hpccoll import testing
from hpccoll.worlds import World

N, G = 4, 2
P, FAR = N * G, N * G - G
COUNTS = N - 1  # messages of a leader that gathers the counts of all ranks, or their votes on memory
KIB = 256  # elements of float32


def floats(kib: int) -> np.ndarray:
    return np.ones(kib * KIB, np.float32)


def messages(of: Callable[[int], int]) -> list[int]:
    return [of(rank) for rank in range(P)]


def leads(rank: int) -> bool:
    """Ranks of a node are neighbours, so its leader is even."""
    return rank % G == 0


CASES: dict[str, tuple[Callable[[World], object], list[int], int]] = {  # messages per rank, and bytes of rank 0 in data
    "allgather of at most 64 KiB": (
        lambda world: world.allgather(floats(4), name="x"),
        messages(lambda r: 2 * COUNTS if leads(r) else 0), (N - 1) * G * 4096,
    ),
    "allgather around a ring": (
        lambda world: world.allgather(floats(128), name="x"),
        messages(lambda r: 3 * COUNTS if leads(r) else 0), (N - 1) * G * (128 << 10),
    ),
    "reducescatter": (
        lambda world: world.reducescatter(floats(64), name="x"),
        messages(lambda _: N - 1), (64 << 10) // G * (N - 1) // N,
    ),
    "alltoall of few rows": (
        lambda world: world.alltoall(floats(8), name="x"), messages(lambda _: FAR), FAR * (1024 + 24)
    ),
    "alltoall of many rows": (
        lambda world: world.alltoall(floats(256), name="x"),
        messages(lambda r: 2 * FAR + (COUNTS if leads(r) else 0)), FAR * ((32 << 10) + 24),
    ),
    "gather": (
        lambda world: world.gather(floats(8), root=0, name="x"),
        messages(lambda r: (COUNTS if leads(r) else 0) + (r >= G)), 0,
    ),
    "scatter": (
        lambda world: world.scatter(floats(64), root=0, name="x"),
        messages(lambda r: (COUNTS if leads(r) else 0) + (FAR if r == 0 else 0)), FAR * (8 << 10),
    ),
    "scan of few bytes": (
        lambda world: world.scan(floats(8), name="x"),
        messages(lambda r: N - 1 if leads(r) else 0), (N - 1) * G * (8 << 10),
    ),
    "scan down a chain": (
        lambda world: world.scan(floats(256), name="x"), messages(lambda r: 4 if not leads(r) and r < P - 1 else 0), 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_messages_are_those_of_the_page(what: str) -> None:
    call, expected, nbytes = CASES[what]

    def program(world: World) -> tuple[int, int]:
        for _ in range(2):
            call(world)
        before = world.stats()
        call(world)
        more = {name: value - before[name] for name, value in world.stats().items()}
        return (more["net_sent_messages"] - more["control_messages_net"],
                more["net_sent_bytes"] - more["control_bytes_net"])  # fmt: skip

    ranks = testing.make_and_run(P, program, nodes=str(N))
    assert [count for count, _ in ranks] == expected
    assert nbytes <= ranks[0][1] <= nbytes + 1024  # counts, votes on memory, and heads of control messages

# SPDX-License-Identifier: Apache-2.0
"""Measures latency, bandwidth and clock difference of pairs of nodes, and collective operations."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hpccoll import World, errors
from hpccoll.checks.finding import Facts
from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import rounds
from hpccoll.tools.doctor.exchange import Exchange
from hpccoll.tools.doctor.links import Link

BLOCK = 256 << 10
"""Bytes of a message when the bandwidth is measured."""
LONG_ENOUGH = 0.3
"""Seconds that the counted batch must last at least; traffic limits that allow bursts are exhausted by then."""
PINGS, PING_SECONDS = 200, 0.1
TICKS = 10
MANY, FEW = 20_000, 9
"""Trials of a small and of a large operation, at most: many, because another process takes a core for milliseconds."""
SECONDS = 1.0
"""Time after which a collective operation is measured no further."""
LEAST, BATCH = 5, 100
"""Trials of an operation at least; trials between two looks at the clock."""
LARGE = 16 << 20
"""Bytes of the large collective operation."""


def between(
    exchange: Exchange,
    survey: Survey,
    connect: Callable[[int, int], Link | None],
    stage: Callable[[str], None],
) -> list[Facts]:
    """Measure each node with about log2(n) partners, all pairs of a round at once, then the suspects alone.

    All ranks call it together.

    :param connect: called on both leaders of a pair with the index of the own and of the other node; returns None if
        the other node cannot be reached
    :param stage: called with the name of each stage before it begins
    :returns: one entry per measurement, see `pair`; the same on all ranks
    """
    leaders = survey.leaders
    mine = next((i for i, report in enumerate(leaders) if report.rank == exchange.rank), -1)

    def measure_pairs(pairs: list[rounds.Pair]) -> list[Facts]:
        nodes = next((p for p in pairs if mine in p), None)
        found = _measure(nodes, mine, connect) if nodes else None
        return [link for link in exchange.allgather(found) if link]

    links: list[Facts] = []
    schedule = rounds.rounds(len(leaders))
    for number, pairs in enumerate(schedule, 1):
        stage(f"measuring the network, round {number} of {len(schedule)}")
        links += measure_pairs(pairs)
    for first, second in rounds.again(rounds.slow_pairs(links), len(leaders)):
        stage(f"measuring {leaders[first].host} and {leaders[second].host} again")
        links += measure_pairs([(first, second)])
    return [link | {"hosts": [leaders[node].host for node in link["nodes"]]} for link in links]


def _measure(nodes: rounds.Pair, mine: int, connect: Callable[[int, int], Link | None]) -> Facts | None:
    """Measure one pair; the lower node returns the result of the pair, the other one None."""
    first = mine == nodes[0]
    link = connect(mine, nodes[1] if first else nodes[0])
    if link is None:
        return {"nodes": list(nodes), "error": "no connection"} if first else None
    try:
        found = pair(link, first)
    except OSError as error:
        return {"nodes": list(nodes), "error": str(error)} if first else None
    finally:
        link.close()
    return {"nodes": list(nodes), **found} if first else None


def pair(link: Link, first: bool) -> Facts:
    """Measure a pair of nodes; both ends call it together.

    :param first: whether this end measures and returns the result
    :returns: latency (s, one way), skew of the other clock (s), bandwidth there and back (bytes/s), bytes sent
    """
    if not first:
        _echo(link)
        _send_time(link)
        _receive_batches(link)
        link.send(np.array(_send_batches(link), np.float64).view(np.uint8))
        return {}
    latency = _ping(link)
    skew = _ask_time(link)
    there, sent = _send_batches(link)
    _receive_batches(link)
    answer = np.zeros(2)
    link.receive(answer.view(np.uint8))
    back, sent_back = answer
    return {
        "latency": latency,
        "skew": skew,
        "bandwidth": [there, float(back)],
        "sent": sent + int(sent_back),
    }


def _ping(link: Link) -> float:
    """Half the first quartile of the round trips of one byte: other load on a core can only make a trip longer."""
    byte = np.zeros(1, np.uint8)

    def trip() -> float:
        began = time.perf_counter()
        link.send(byte)
        link.receive(byte)
        return time.perf_counter() - began

    trip()  # sets the connection up
    count = max(3, min(PINGS, int(PING_SECONDS / trip())))
    link.send(np.array([count], np.int64).view(np.uint8))
    return float(np.percentile([trip() for _ in range(count)], 25)) / 2


def _echo(link: Link) -> None:
    byte, count = np.zeros(1, np.uint8), np.zeros(1, np.int64)

    def back() -> None:
        link.receive(byte)
        link.send(byte)

    back()
    back()
    link.receive(count.view(np.uint8))
    for _ in range(int(count[0])):
        back()


def _ask_time(link: Link) -> float:
    """Seconds by which the other node's clock is ahead, from the fastest of some round trips (Cristian 1989)."""
    trips, remote = [], np.zeros(1)
    for _ in range(TICKS):
        began = time.time()
        link.send(remote.view(np.uint8))
        link.receive(remote.view(np.uint8))
        trip = time.time() - began
        trips.append((trip, float(remote[0]) - began - trip / 2))
    return min(trips)[1]


def _send_time(link: Link) -> None:
    question = np.zeros(1)
    for _ in range(TICKS):
        link.receive(question.view(np.uint8))
        link.send(np.array([time.time()]).view(np.uint8))


def _send_batches(link: Link) -> tuple[float, int]:
    """Send longer and longer batches until one lasts LONG_ENOUGH; the first batch never counts.

    :returns: the rate of that batch (bytes/s), and the bytes of all batches
    """
    block, header, done = np.zeros(BLOCK, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    count, sent, batches = 1, 0, 0
    while True:
        header[0] = count
        link.send(header.view(np.uint8))
        began = time.perf_counter()
        link.send(block, count)
        link.receive(done)
        seconds = time.perf_counter() - began
        sent, batches = sent + count * BLOCK, batches + 1
        if seconds >= LONG_ENOUGH and batches > 1:
            break
        count = max(count, min(16 * count, int(count * 1.3 * LONG_ENOUGH / seconds) + 1))
    header[0] = 0
    link.send(header.view(np.uint8))
    return count * BLOCK / seconds, sent


def _receive_batches(link: Link) -> None:
    block, header, done = np.zeros(BLOCK, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    while True:
        link.receive(header.view(np.uint8))
        if header[0] == 0:
            return
        link.receive(block, int(header[0]))
        link.send(done)


def collectives(comm: Any, nbytes: int = LARGE, nodes: str = "") -> Facts:
    """Measure hpccoll's allreduce over a communicator; all its ranks call it together.

    :param nbytes: size of the large array of float32
    :param nodes: as HPCCOLL_NODES
    :returns: seconds for 8 bytes ("small") and `nbytes` ("large"), each the median of the slowest rank; for 8 bytes the
        mean and the longest time, too ("mean", "worst"); for a copy of `nbytes` by all ranks at once ("copy"); or
        hpccoll's "error"
    """
    facts = {"ranks": comm.Get_size(), "bytes": nbytes}
    try:
        return facts | _time_allreduce(comm, nbytes, nodes)
    except errors.HpccollError as error:
        return facts | {"error": str(error)}


def _time_allreduce(comm: Any, nbytes: int, nodes: str) -> dict[str, float]:
    with World(comm, verbose=0, check=False, nodes=nodes) as world:
        small, large = np.ones(2, np.float32), np.ones(nbytes // 4, np.float32)
        copied = large.copy()
        usual, mean, worst = _times(comm, lambda: world.allreduce(small, name="small"), MANY)
        return {
            "small": usual,
            "mean": mean,
            "worst": worst,
            "large": _times(comm, lambda: world.allreduce(large, name="large"), FEW)[0],
            "copy": _times(comm, lambda: np.copyto(copied, large), FEW)[0],
        }


def _times(comm: Any, action: Callable[[], object], most: int) -> list[float]:
    """Repeat an action on all ranks, at most `most` times and for about a second.

    The ranks agree after each batch whether to go on: on a busy machine the first trials can take microseconds and the
    later ones milliseconds, or the reverse.

    :returns: median, mean and maximum of the seconds, each of the rank where it is largest
    """

    def trial() -> float:
        comm.Barrier()
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    for _ in range(3):  # the set-up in the first is not counted
        trial()
    found: list[float] = []
    began, count = time.perf_counter(), LEAST
    while count > 0:
        found += [trial() for _ in range(count)]
        late = max(comm.allgather(time.perf_counter() - began)) > SECONDS
        count = 0 if late else min(BATCH, most - len(found))
    mine = [float(np.median(found)), float(np.mean(found)), max(found)]
    return [max(each) for each in zip(*comm.allgather(mine), strict=True)]

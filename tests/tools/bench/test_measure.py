# SPDX-License-Identifier: Apache-2.0
"""What a sample is: inputs are written before each call, ranks are averaged, and cores that move are left out."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from made import results

from hpccoll import _fleet
from hpccoll.tools.bench import collectives, distance, libraries, measure, table
from hpccoll.tools.bench.distance import Distances
from hpccoll.tools.bench.measure import FARTHEST, MEAN, Limits, Timed


class Alone:
    """A single rank, or the first of several whose others took other times."""

    rank, size = 0, 1

    def __init__(self, *others: float) -> None:
        self.others = others

    def barrier(self) -> None:
        """There is nobody to wait for."""

    def slowest(self, seconds: np.ndarray) -> np.ndarray:
        return np.max([seconds, *(0 * seconds + other for other in self.others)], axis=0)

    def mean(self, seconds: np.ndarray) -> np.ndarray:
        return np.mean([seconds, *(0 * seconds + other for other in self.others)], axis=0)

    def share(self, value: object) -> list[object]:
        return [value]


@dataclass
class Told:
    """Distances as told, one after each batch."""

    told: list[float]
    latencies: list[float] = field(default_factory=lambda: [1e-7])
    names: tuple[str, ...] = ("same L3",)

    def moved(self) -> bool:
        before, self.latencies = self.latencies, [self.told.pop(0) if self.told else self.latencies[0]]
        return distance.differ(np.array(before), np.array(self.latencies))

    def ends(self) -> tuple[float, float]:
        return self.latencies[0], self.latencies[0]


def test_inputs_are_written_before_each_call_and_outside_of_the_time() -> None:
    done: list[str] = []

    def write() -> None:
        done.append("write")
        time.sleep(0.002)

    def call() -> None:
        done.append("call")
        time.sleep(2e-4)

    limits = Limits(width=0, most=10, least=10, seconds=60, warmup=2)
    (timed,) = measure.in_turn([call], Alone(), limits, [write])
    calls = 2 + measure.TRIES + 10 * timed.calls
    assert done == ["write", "call"] * calls
    assert min(timed.samples) < 0.0015 and timed.spent < 0.002 * 10 * timed.calls
    assert timed.described(limits)["inputs"] == "written before each call"


def test_inputs_are_kept_if_asked_for() -> None:
    (timed,) = measure.in_turn([lambda: None], Alone(), Limits(width=0, most=10))
    assert timed.described(Limits())["inputs"] == "kept" and len(timed.samples) == 10


def test_the_average_is_that_of_osu() -> None:
    """osu_allreduce.c: each rank's time divided by the iterations, summed over the ranks, divided by their number."""
    (timed,) = measure.in_turn([lambda: None], Alone(1.0, 0.5), Limits(width=0, most=10, seconds=60))
    assert timed.samples == [1.0] * 10 and timed.parts[MEAN] == pytest.approx([0.5] * 10, abs=0.01)
    (case, *_) = results(launches=1, count=4).cases.values()
    case.parts[MEAN], case.calls = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 1, 1, 5])
    assert table.osu_average(case) == (1 + 2 + 3 + 5 * 4) / 8


def test_a_batch_during_which_the_cores_moved_is_left_out() -> None:
    timed, told = Timed(lambda: None), Told([1.1e-7, 3e-7, 3.1e-7, 1e-7, 1.2e-7])
    for number in range(5):
        timed.add([float(number)] * 5, [0.0] * 5, told)
    assert timed.samples == [0.0] * 5 + [2.0] * 5 + [4.0] * 5
    assert timed.parts[FARTHEST] == [1.1e-7] * 5 + [3.1e-7] * 5 + [1.2e-7] * 5
    assert timed.described(Limits())["batches left out"] == 2 and timed.spent == 5 * (0 + 1 + 2 + 3 + 4)


def test_where_cores_never_rest_batches_are_kept_and_marked() -> None:
    timed, told = Timed(lambda: None), Told([1e-7 if i % 2 else 3e-7 for i in range(100)])
    for number in range(100):
        timed.add([1.0 + number % 3], [1.0], told)
        timed.judge(Limits(seconds=20, least=6))
        if timed.ended:
            break
    assert timed.ended == "limit" and timed.marked >= 6 and timed.spent < 60


def test_a_figure_for_each_distance() -> None:
    """A median over two distances would be the time of none."""
    (case, *_) = results(launches=1, count=10).cases.values()
    case.samples[:] = [1e-6] * 6 + [5e-6] * 4
    case.parts[FARTHEST] = np.array([5e-8] * 5 + [7e-8] + [2e-7] * 4)
    assert [(low, len(some), np.median(some)) for low, some in table.at_each_distance(case)] == [
        (5e-8, 6, 1e-6), (2e-7, 4, 5e-6)
    ]  # fmt: skip
    assert "at 50 ns " in table.line(case) and "at 200 ns " in table.line(case)


def test_distances_are_told_apart() -> None:
    """Same L3, another L3 and another socket, as published for a Zen 3 of two sockets; noise, and turns on a core."""
    near, far, socket, turns = 25e-9, 100e-9, 200e-9, 1.95e-6
    assert distance.classes([near, 1.3 * near, far, 1.2 * far, socket, turns, 1e-4]) == [near, far, socket, turns]
    for before, after, moved in ((near, far, True), (far, socket, True), (near, 1.5 * near, False),
                                 (turns, 1e-4, False), (near, 1e-4, True), (0.0, far, False)):  # fmt: skip
        assert distance.differ(np.array([before]), np.array([after])) is moved, (before, after)


def test_names_of_distances(tmp_path: Path) -> None:
    """Linux's sysfs: two sockets of two L3s of two cores, each of two threads; n and n + 8 are of one core."""
    for n in range(16):
        core = n % 8
        l3 = [2 * (core // 2), 2 * (core // 2) + 1]
        for path, value in (
            ("topology/thread_siblings_list", f"{core},{core + 8}"),
            ("topology/physical_package_id", str(core // 4)),
            ("cache/index3/shared_cpu_list", f"{l3[0]}-{l3[1]},{l3[0] + 8}-{l3[1] + 8}"),
        ):
            (tmp_path / f"cpu{n}" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / f"cpu{n}" / path).write_text(value + "\n")
    pairs = ((0, 8), (0, 1), (0, 9), (0, 2), (0, 11), (0, 4))
    found = [distance.NAMES[distance.named(*pair, processors=tmp_path, virtual=False)] for pair in pairs]
    assert found == ["same core", "same L3", "same L3", "another L3", "another L3", "another socket"]
    assert distance.named(0, 1, processors=tmp_path, virtual=True) == 0  # its caches are invented
    assert distance.NAMES[distance.named(3, 3, processors=tmp_path, virtual=True)] == "same core"
    assert distance.text(("same L3",), [5.2e-8, 5.4e-8]) == "same L3, 53 ns" and distance.text((), []) == ""
    assert distance.text((), [5e-8, 2e-7]) == "50..200 ns"
    assert distance.text(("same core",), [5e-8, 1e-3]) == "same core, 50 ns, turns on a core"


def test_a_line_between_two_threads() -> None:
    shared, measured = bytearray(2 * _fleet.LINE_BYTES), 0
    with memoryview(shared) as view, ThreadPoolExecutor(1) as pool:
        for turn in itertools.cycle(range(1, 200)):  # on a loaded machine the other thread often comes too late
            other = pool.submit(_fleet.bounce, view, 1, turn, False)
            seconds = _fleet.bounce(view, 1, turn, True)
            answered = other.result(10)
            if seconds:
                assert 1e-9 < seconds < 1e-2 and answered == 1.0
                measured += 1
            if measured == 2:
                break
        began = time.monotonic()
        assert _fleet.bounce(view, 1, 200, True) == 0.0  # nobody comes
        assert _fleet.bounce(view, 1, 200, False) == 0.0 and time.monotonic() - began < 2
        with pytest.raises(IndexError):
            _fleet.bounce(view, 2, 1, True)


def test_a_single_rank_has_no_distance() -> None:
    distances = Distances(Alone())
    assert distances.ends() == (0.0, 0.0) and not distances.moved()
    distances.close()


@pytest.mark.parametrize(
    ("name", "counts"),  # bytes that ranks 0 and 1 of 2 have to read or write at least: inputs or results of 120 bytes
    [("allreduce", (120, 120)), ("broadcast", (120, 120)), ("gather", (120, 60)), ("scatter", (120, 60)),
     ("allgather", (120, 120)), ("reduce", (120, 120)), ("alltoall", (120, 120)), ("sendrecv", (120, 120))],
)  # fmt: skip
def test_the_floor_copies_what_a_rank_gives_or_gets(name: str, counts: tuple[int, int]) -> None:
    for rank, count in enumerate(counts):
        task = collectives.task(name, 120, np.float32, rank, 2)
        assert task.moved().nbytes == count
        libraries.Memcpy().call(task)()


def test_inputs_are_written_where_there_are_any() -> None:
    for name, writers in (
        ("allreduce", [0, 1]),
        ("broadcast", [0]),
        ("scatter", [0]),
        ("gather", [0, 1]),
        ("barrier", []),
    ):
        tasks = [collectives.task(name, 120, np.float32, rank, 2, in_place=True) for rank in (0, 1)]
        assert [task.rank for task in tasks if task.writer()] == writers, name
    task = collectives.task("allreduce", 120, np.float32, 1, 2, in_place=True)
    task.x[...] = 99
    task.writer()()
    expected = np.arange(30) % 7 + 1
    assert (task.x == expected).all() and task.out is task.x

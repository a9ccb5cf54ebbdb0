# SPDX-License-Identifier: Apache-2.0
"""Data, expected results and bandwidths of each collective, without communication."""

from typing import Any, cast

import numpy as np
import pytest

from hpccoll.tools.bench import collectives, sizes, training


@pytest.mark.parametrize(
    ("name", "busbw"),  # nccl-tests, doc/PERFORMANCE.md, for 4 ranks
    [("allreduce", 1.5), ("allgather", 0.75), ("reducescatter", 0.75), ("alltoall", 0.75), ("broadcast", 1),
     ("reduce", 1), ("sendrecv", 1), ("gather", 0.75), ("scatter", 0.75)],
)  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(name: str, busbw: float) -> None:
    assert collectives.bandwidths(name, 1000, 4, 1e-6) == pytest.approx((1e9, busbw * 1e9))


@pytest.mark.parametrize("name", [n for n in collectives.COLLECTIVES if n != "barrier"])
def test_the_size_is_the_larger_side(name: str) -> None:
    for rank in range(3):
        task = collectives.task(name, 100, np.float32, rank, 3)
        assert task.nbytes == (96 if task.collective.parts else 100)


def done(name: str, ranks: int, dtype: str) -> list[collectives.Task]:
    """All ranks' arrays after the collective, done by hand."""
    tasks = [collectives.task(name, 120, dtype, rank, ranks) for rank in range(ranks)]
    for task in tasks:
        task.fill()
    x = [task.x.copy() for task in tasks]
    parts = [np.split(a, ranks) if len(a) % ranks == 0 else [] for a in x]
    for r, task in enumerate(tasks):
        task.out[...] = {
            "allreduce": lambda: sum(x), "reduce": lambda: sum(x), "scan": lambda r=r: sum(x[: r + 1]),
            "exscan": lambda r=r: sum(x[:r]), "broadcast": lambda: x[0], "sendrecv": lambda r=r: x[r - 1],
            "allgather": lambda: np.concatenate(x), "gather": lambda: np.concatenate(x),
            "reducescatter": lambda r=r: sum(p[r] for p in parts), "scatter": lambda r=r: parts[0][r],
            "alltoall": lambda r=r: np.concatenate([p[r] for p in parts]),
        }[name]()  # fmt: skip
    return tasks


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("name", [n for n in collectives.COLLECTIVES if n != "barrier"])
def test_right_results_pass_and_a_wrong_one_is_named(name: str, dtype: str) -> None:
    tasks = done(name, 3, dtype)
    assert [task.wrong() for task in tasks] == [""] * 3
    last = tasks[0 if name in ("reduce", "gather") else 2]
    last.out[1] += 1
    assert f"rank {last.rank} has " in last.wrong() and "at element 1 (1 of " in last.wrong()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_result_that_is_no_number_is_wrong(dtype: str) -> None:
    for task in done("allreduce", 300, dtype)[:2]:
        task.out[1] = np.nan
        assert "has nan instead of" in task.wrong() and "at element 1 (1 of " in task.wrong()


def test_sums_of_many_ranks_wrap_around_in_eight_bits() -> None:
    tasks = done("allreduce", 64, "uint8")
    assert (sum(task.x.astype(int) for task in tasks) > 255).any()
    assert not any(task.wrong() for task in tasks)


class Alone:
    rank, size = 0, 1


def test_a_gradient_that_is_no_number_is_wrong() -> None:
    step = training.Step(training.trace("even:10:2"), 0.0, cast("Any", Alone()))
    assert not step.wrong(lambda name, x: lambda: None)
    assert "1 of 5 sums of even:10:2.1 are wrong" in step.wrong(
        lambda name, x: lambda: x.__setitem__(3, np.nan if name.endswith(".1") else x[3])
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("8:64", [8, 16, 32, 64]), ("8:1K:8", [8, 64, 512]), ("1M,4", [4, 1 << 20]), ("2GiB", [2 << 30])],
)
def test_sizes(text: str, found: list[int]) -> None:
    assert sizes.sizes(text) == found


@pytest.mark.parametrize("text", ["x", "8:4", "8:64:1", "0:8", "8:64:2:2", "", "0", "0,8"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(sizes.argparse.ArgumentTypeError):
        sizes.sizes(text)

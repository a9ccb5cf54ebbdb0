# SPDX-License-Identifier: Apache-2.0
"""`hpccoll.run`: a function on all ranks of a new job."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll
from hpccoll.tools.launch.job import LaunchError

pytestmark = pytest.mark.timeout(240)


def total(first: float, step: float = 1.0) -> tuple[int, list[float]]:
    hpccoll.init()
    return hpccoll.rank(), hpccoll.allreduce(np.full(2, first + step * hpccoll.rank())).tolist()


def half_fails() -> None:
    world = hpccoll.init()
    if world.rank == 1:
        raise KeyError("no such layer")
    hpccoll.allreduce(np.ones(1))


def one_is_killed() -> int:
    world = hpccoll.init()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hpccoll.barrier()
    return world.rank


def shown_by_ps(variable: str) -> tuple[bool, list[str]]:
    """Whether a variable has a value here, and the arguments of all processes in which this value stands."""
    value, found = os.environ.get(variable, ""), []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process may end meanwhile
            found += [text for text in [file.read_bytes().decode(errors="replace")] if value in text]
    return bool(value), found


def test_values_of_variables_are_in_no_argument() -> None:
    secret = f"{os.getpid()}-nobody-else-may-read-this"
    assert hpccoll.run(shown_by_ps, ("A_KEY",), np=2, timeout=100, env={"A_KEY": secret}) == [(True, [])] * 2


def test_results_come_in_the_order_of_the_ranks() -> None:
    assert hpccoll.run(total, (1,), {"step": 2}, np=3, timeout=100) == [(r, [9.0, 9.0]) for r in range(3)]


def test_a_function_that_has_no_name() -> None:
    pytest.importorskip("cloudpickle")
    large = np.arange(1 << 20)
    sums = hpccoll.run(lambda: int(large.sum()), np=2, timeout=100)
    assert sums == [int(large.sum())] * 2


def test_an_exception_names_its_rank_and_shows_its_traceback() -> None:
    with pytest.raises(hpccoll.RankError, match="rank 1 ") as caught:
        hpccoll.run(half_fails, np=2, timeout=100)
    error = caught.value
    assert error.rank == 1 and 'raise KeyError("no such layer")' in error.traceback
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize(("function", "says"), [(one_is_killed, "rank 1"), (threading.Lock, "pickle")])
def test_a_rank_without_a_result_is_an_error(function: Callable[[], Any], says: str) -> None:
    pytest.importorskip("cloudpickle")
    with pytest.raises((LaunchError, hpccoll.RankError), match=says):
        hpccoll.run(function, np=2, timeout=100)


SLEEPS = """
import os, time, hpccoll
def sleep():
    open(f"rank-{os.getpid()}", "w").close()
    time.sleep(100)
if __name__ == "__main__":
    hpccoll.run(sleep, np=2, timeout=100)
"""


def marked(word: str) -> list[int]:
    """Return the processes with a variable of the test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TEST_MARK={word}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_job_ends_with_the_process_that_called_run(number: int, tmp_path: Path) -> None:
    """Before, its ranks went on, with nobody to give their results to."""
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    environment = os.environ | {"TEST_MARK": (word := f"run-{os.getpid()}-{number}")}
    caller = subprocess.Popen([sys.executable, "sleeps.py"], env=environment, cwd=tmp_path)
    try:
        limit = time.monotonic() + 60
        while len(list(tmp_path.glob("rank-*"))) < 2:
            assert time.monotonic() < limit and caller.poll() is None
            time.sleep(0.05)
        caller.send_signal(number)
        assert caller.wait(30) == -number
        limit = time.monotonic() + 30
        while left := marked(word):
            assert time.monotonic() < limit, left
            time.sleep(0.05)
    finally:
        caller.kill()


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"A": 1}, "hpccoll.run: env: the value of A is 1, which is no text"),
        ({"A": "a\0b"}, "the value of A is"),
        ({"A=B": "1"}, "'A=B' is no name of a variable"),
        ({1: "a"}, "1 is no name of a variable"),
        (["A"], "hpccoll.run: env is a list: give a dict of variables"),
    ],
)
def test_what_is_no_variable_is_refused_at_once(env: Any, says: str) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match=says):
        hpccoll.run(half_fails, np=2, env=env)

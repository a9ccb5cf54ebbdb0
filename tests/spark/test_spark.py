# SPDX-License-Identifier: Apache-2.0
"""hpccoll.spark.run on a real cluster."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]
FOUR = 4


def mean(value: float, factor: float = 1.0) -> tuple[int, int, int, float]:
    world = hpccoll.init()
    total = hpccoll.allreduce(np.full(1000, factor * value + world.rank), hpccoll.AVERAGE)
    result = world.rank, world.size, os.getpid(), float(total[0])
    hpccoll.shutdown()
    return result


def raises_on_rank_1() -> None:
    hpccoll.init()
    if hpccoll.rank() == 1:
        raise ValueError("learning rate")
    hpccoll.allreduce(np.ones(1))


def killed_on_rank_2() -> None:
    hpccoll.init()
    hpccoll.allreduce(np.ones(1))
    if hpccoll.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    hpccoll.allreduce(np.ones(1))


def kills_its_executor() -> None:
    hpccoll.init()
    hpccoll.allreduce(np.ones(1))
    if hpccoll.rank() == 0:
        parent = os.getppid()
        while "java" not in Path(f"/proc/{parent}/comm").read_text():
            parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
    hpccoll.allreduce(np.ones(1))
    time.sleep(60)  # the agent ends this rank before


@pytest.fixture
def run(spark: Any) -> Any:
    """The program's own functions are not installed on executors: this file travels by value."""
    from pyspark import cloudpickle

    import hpccoll.spark

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield hpccoll.spark.run
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_function_runs_on_all_ranks(run: Any) -> None:
    results = run(mean, args=(1.0,), kwargs={"factor": 2.0}, num_proc=FOUR, env={"HPCCOLL_NODES": "2"})
    assert [(rank, size, value) for rank, size, _, value in results] == [(rank, FOUR, 3.5) for rank in range(FOUR)]
    assert len({pid for _, _, pid, _ in results}) == FOUR


def test_over_data_frames_as_with_spark_connect(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpccoll.spark import driver

    pytest.importorskip("pyarrow")
    monkeypatch.setattr(driver, "_context", lambda session: None)
    results = run(mean, args=(1.0,), num_proc=2)
    assert [(rank, size, value) for rank, size, _, value in results] == [(rank, 2, 1.5) for rank in range(2)]


def test_an_exception_names_its_rank(run: Any) -> None:
    with pytest.raises(hpccoll.RankError, match="learning rate") as raised:
        run(raises_on_rank_1, num_proc=2)
    assert (raised.value.rank, raised.value.lost) == (1, False)
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_killed_rank_is_named(run: Any) -> None:
    with pytest.raises(hpccoll.RankError, match=r"rank 2 \(host .* was lost: killed by signal 9") as raised:
        run(killed_on_rank_2, num_proc=FOUR, env={"HPCCOLL_NODES": "2"})
    assert (raised.value.rank, raised.value.lost) == (2, True)


def test_an_executor_that_is_killed_ends_the_job(run: Any) -> None:
    from hpccoll.tools.launch.job import LaunchError

    with pytest.raises(LaunchError, match=r"the 4 ranks.*xecutor"):
        run(kills_its_executor, num_proc=FOUR)
    assert [rank for rank, *_ in run(mean, args=(1.0,), num_proc=2)] == [0, 1]  # Spark has started another executor


def test_no_number_of_ranks(run: Any) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match="num_proc"):
        run(mean, args=(1.0,), num_proc=-1)

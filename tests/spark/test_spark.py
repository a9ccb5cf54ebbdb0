# SPDX-License-Identifier: Apache-2.0
"""hpccoll.spark.run on a real cluster."""

import os
import signal
import subprocess
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


def raises_on_every_rank() -> None:
    hpccoll.init()
    raise ValueError("learning rate")


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
        kill_the_executor()
    hpccoll.allreduce(np.ones(1))
    time.sleep(60)  # the agent ends this rank before


def kill_the_executor() -> None:
    parent = os.getppid()
    while "java" not in Path(f"/proc/{parent}/comm").read_text():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)


def goes_on(deed: str, mark: str) -> tuple[int, int, int, float]:
    """Rank 1 is struck in step 5, and all go on until there are four ranks again."""
    from hpccoll import elastic

    state = elastic.ArrayState(weights=np.zeros(3), step=0)
    turns = 0

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        nonlocal turns
        turns += 1
        while state.step < 20 or hpccoll.size() < FOUR:
            if state.step == 5 and hpccoll.rank() == 1 and not Path(mark).exists():
                Path(mark).touch()
                if deed == "exception":
                    raise ValueError("a bad row")
                kill_the_executor() if deed == "executor" else os.kill(os.getpid(), signal.SIGKILL)
            state.weights += hpccoll.allreduce(np.ones(3), hpccoll.AVERAGE, name="gradient")
            state.step += 1
            state.commit()
            time.sleep(0.02)

    train(state)
    return hpccoll.rank(), hpccoll.size(), turns, float(state.weights[0]) - state.step


def ends_on_rank_1(how: str) -> int:
    """Rank 1 ends with status 0 after the training, and gives no result."""
    from hpccoll import elastic

    state = elastic.ArrayState(weights=np.zeros(3), step=0)
    elastic.run(lambda state: hpccoll.allreduce(state.weights))(state)
    rank = hpccoll.rank()
    if rank == 1:
        hpccoll.shutdown()
        sys.exit(0) if how == "sys.exit" else os._exit(0)
    return rank


@pytest.fixture
def run(by_value: Any) -> Any:
    import hpccoll.spark

    return hpccoll.spark.run


def test_a_function_runs_on_all_ranks(run: Any) -> None:
    results = run(mean, args=(1.0,), kwargs={"factor": 2.0}, num_proc=FOUR, env={"HPCCOLL_NODES": "2"})
    assert [(rank, size, value) for rank, size, _, value in results] == [(rank, FOUR, 3.5) for rank in range(FOUR)]
    assert len({pid for _, _, pid, _ in results}) == FOUR


def test_over_data_frames_as_with_spark_connect(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpccoll.spark import driver

    pytest.importorskip("pyarrow")
    monkeypatch.setattr(driver, "context_of", lambda session: None)
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


@pytest.fixture
def run_elastic(run: Any) -> Any:
    del run
    import hpccoll.spark

    return hpccoll.spark.run_elastic


@pytest.mark.parametrize("deed", ["rank", "exception", "executor"])
def test_an_elastic_job_goes_on(run_elastic: Any, tmp_path: Path, deed: str) -> None:
    """A worker is killed or raises, or the executor of two is killed: the others go on, and the lost ones come back.

    After an exception the others took the rank for one that had ended, and the job ended.
    """
    results = run_elastic(goes_on, args=(deed, str(tmp_path / "mark")), num_proc=FOUR, min_num_proc=1)
    assert sorted(rank for rank, *_ in results) == list(range(len(results)))
    assert {wrong for *_, wrong in results} == {0.0}, results
    assert max(turns for _, _, turns, _ in results) >= 2, results  # a survivor; newcomers have fewer turns


@pytest.mark.parametrize("how", ["sys.exit", "os._exit"])
def test_an_elastic_job_does_not_leave_a_rank_out_of_its_results(run_elastic: Any, how: str) -> None:
    """The list had two results for three ranks."""
    from hpccoll.tools.launch.job import LaunchError

    with pytest.raises(LaunchError, match="rank 1 has ended with status 0 before the function returned"):
        run_elastic(ends_on_rank_1, args=(how,), num_proc=3, min_num_proc=1)


def test_an_elastic_job_that_cannot_go_on(run_elastic: Any) -> None:
    from hpccoll.tools.launch.job import LaunchError

    with pytest.raises(LaunchError, match="learning rate"):
        run_elastic(raises_on_every_rank, num_proc=2)
    with pytest.raises(hpccoll.InvalidArgumentError, match="1 <= min <= num <= max"):
        run_elastic(mean, args=(1.0,), num_proc=2, min_num_proc=3)
    for odd in ({"num_proc": 0}, {"num_proc": 2, "min_num_proc": 0}, {"num_proc": 1.5}):
        with pytest.raises(hpccoll.InvalidArgumentError, match="needs 1 <= min <= num <= max"):
            run_elastic(mean, args=(1.0,), **odd)


def test_no_number_of_ranks(run: Any) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match="num_proc"):
        run(mean, args=(1.0,), num_proc=-1)
    for odd in (0, 1.5, "2"):  # 0 was taken for None, and 1.5 for 1
        with pytest.raises(hpccoll.InvalidArgumentError, match=f"num_proc is {odd!r}: say how many ranks"):
            run(mean, args=(1.0,), num_proc=odd)


@pytest.mark.parametrize("elastic", [False, True])
def test_what_is_no_variable_is_refused_before_the_job(run: Any, run_elastic: Any, elastic: bool) -> None:
    """It was a long error of Spark, from its tasks."""
    with pytest.raises(hpccoll.InvalidArgumentError, match="env: the value of A is 1, which is no text"):
        (run_elastic if elastic else run)(mean, args=(1.0,), num_proc=2, env={"A": 1})


def test_more_ranks_than_slots_are_refused_before_the_job(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpccoll.spark import driver
    from hpccoll.tools.launch.job import LaunchError

    monkeypatch.setattr(driver, "REGISTERING", 1.0)
    with pytest.raises(LaunchError, match=r"hpccoll.spark.run: 5 ranks need 5 slots at once, and Spark has 4"):
        run(mean, args=(1.0,), num_proc=5)


WITH_GPUS = """
import os, sys
from pyspark.sql import SparkSession
import hpccoll, hpccoll.spark

settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.executor.memory": "512m", "spark.task.resource.gpu.amount": "1"}
for owner in ("worker", "executor"):
    settings |= {f"spark.{owner}.resource.gpu.amount": "2", f"spark.{owner}.resource.gpu.discoveryScript": sys.argv[1]}
builder = SparkSession.builder.master("local-cluster[1,2,1024]")
for name, value in settings.items():
    builder = builder.config(name, value)
builder.getOrCreate()

def seen():
    return os.environ["CUDA_VISIBLE_DEVICES"]

run = hpccoll.spark.run
print("SEEN", *run(seen, num_proc=2), *run(seen, num_proc=2, env={"CUDA_VISIBLE_DEVICES": "1"}))
"""


def test_a_rank_sees_the_gpus_that_spark_has_given_to_its_machine(tmp_path: Path) -> None:
    """They are pretended. Ranks used GPU 0 and on of the machine, whichever Spark had given to them."""
    pytest.importorskip("pyspark", reason="no Spark: pip install 'hpccoll[spark]'")
    from hpccoll.spark.task import visible_devices

    machines, given = ["a", "a", "b"], [["7"], ["5"], ["0"]]
    seen = [visible_devices(rank, machines, given)["CUDA_VISIBLE_DEVICES"] for rank in range(3)]
    assert [seen[0].split(",")[0], seen[1].split(",")[1], seen[2]] == ["7", "5", "0"]  # at its local rank
    assert visible_devices(0, machines, [[], [], []]) == {}
    script = tmp_path / "gpus.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["5", "7"]}'\n""")
    script.chmod(0o755)
    variables = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", WITH_GPUS, script], env=os.environ | variables, capture_output=True, text=True,
        timeout=400,
    )  # fmt: skip
    said = [line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("SEEN")]
    assert said, ended.stderr[-3000:]
    first, *rest = said[0]
    assert (sorted(first.split(",")), rest) == (["5", "7"], [first, "1", "1"])

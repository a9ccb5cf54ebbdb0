# SPDX-License-Identifier: Apache-2.0
"""Trials of Ray Tune, at the same time, each with ranks of its own: of a trainer, and of a RayExecutor."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]
WAIT = 200.0
"""Seconds that a trial waits for the other one."""


def meet(folder: str, own: str, other: str) -> None:
    """Write a file, and wait for that of the other trial: both run now."""
    Path(folder, own).touch()
    limit = time.monotonic() + WAIT
    while not Path(folder, other).exists():
        assert time.monotonic() < limit, f"{other} is not there"
        time.sleep(0.1)


def steps(config: dict[str, Any]) -> dict[str, Any]:
    """What a rank of trial `x` finds. The trial `fails` raises or dies on rank 1 when both are in their World."""
    import hpccoll

    world = hpccoll.init()
    mine, other = ("a", "b") if config["x"] == 1.0 else ("b", "a")
    meet(config["folder"], f"{mine}{world.rank}", f"{other}{world.rank}")
    sums = {float(hpccoll.allreduce(np.full(1000, config["x"]))[0])}
    if config["x"] == config["fails"] and world.rank == 1:
        Path(config["folder"], "failed").touch()
        if config["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("learning rate")
    if config["fails"] and config["x"] != config["fails"]:
        meet(config["folder"], f"waits{world.rank}", "failed")
    for _ in range(200):
        sums.add(float(hpccoll.allreduce(np.full(1000, config["x"]))[0]))
    found = (world.rank, world.size, sorted(sums), os.environ["HPCCOLL_START_TIMEOUT"], os.environ["_HPCCOLL_STORE"])
    return {"found": world.allgather_object(found)}


def in_trainer(config: dict[str, Any]) -> None:
    import ray.train

    ray.train.report(steps(config))


def trainer(config: dict[str, Any]) -> None:
    """A trial of Ray Train V2: a function that starts a trainer."""
    from ray import tune
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    from hpccoll.ray import HpccollConfig

    TorchTrainer(
        in_trainer,
        train_loop_config=config,
        torch_config=HpccollConfig(timeout_s=WAIT + config["x"]),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=tune.get_context().get_trial_id(), storage_path=config["folder"], callbacks=[TuneReportCallback()]
        ),
    ).fit()


def executor(config: dict[str, Any]) -> None:
    from ray import tune

    from hpccoll.ray import RayExecutor

    made = RayExecutor(RayExecutor.create_settings(timeout_s=WAIT + config["x"]), num_workers=2)
    made.start()
    try:
        tune.report(made.run(steps, args=[config])[0])
    finally:
        made.shutdown()


def tuned(trial: Any, folder: Path, **config: Any) -> dict[float, Any]:
    """Run two trials; their results by `x`."""
    from ray import tune

    results = tune.Tuner(
        trial,
        param_space={"x": tune.grid_search([1.0, 10.0]), "folder": str(folder), "fails": None, "dies": False, **config},
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    ).fit()
    return {(result.metrics or {}).get("config", result.config)["x"]: result for result in results}


def check(result: Any, x: float) -> str:
    """A trial has its own ranks, sums and settings; returns the address of its store."""
    found = result.metrics["found"]
    assert [one[:4] for one in found] == [(rank, 2, [2 * x], f"{WAIT + x:g}") for rank in range(2)]
    assert found[0][4] == found[1][4]
    return str(found[0][4])


def group(trial: Any, bundles: int) -> Any:
    """The trial in a placement group, which has bundle 0 for the trial itself."""
    from ray import tune

    return tune.with_resources(trial, tune.PlacementGroupFactory([{"CPU": 1}] * bundles))


@pytest.fixture(params=["trainer", "executor"])
def trial(cluster: Any, request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("ray.tune", reason="no Ray Tune: pip install 'ray[train,tune]'")
    if request.param == "executor":
        return group(executor, 3)
    pytest.importorskip("ray.train.torch", reason="no Ray Train: pip install 'ray[train]' torch")
    return trainer


def test_trials_do_not_see_each_other(trial: Any, tmp_path: Path) -> None:
    results = tuned(trial, tmp_path)
    assert len({check(results[x], x) for x in (1.0, 10.0)}) == 2


@pytest.mark.parametrize("dies", [False, True], ids=["raises", "is killed"])
def test_a_failed_trial_leaves_the_other_one(trial: Any, tmp_path: Path, dies: bool) -> None:
    results = tuned(trial, tmp_path, fails=10.0, dies=dies)
    check(results[1.0], 1.0)
    assert results[1.0].error is None
    text = str(results[10.0].error)
    assert ("rank 1" in text.lower()) if dies else ("learning rate" in text), text


def occupied(config: dict[str, Any]) -> None:
    from hpccoll.ray import RayExecutor

    RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=3), num_workers=config["n"]).start()


@pytest.mark.parametrize(("workers", "text"), [(2, "has not had 2 times"), (3, "num_workers is 3")])
def test_a_placement_group_that_is_too_small(cluster: Any, tmp_path: Path, workers: int, text: str) -> None:
    """The trial itself is in one of two bundles."""
    pytest.importorskip("ray.tune", reason="no Ray Tune: pip install 'ray[train,tune]'")
    results = tuned(group(occupied, 2), tmp_path, n=workers)
    assert all(text in str(result.error) and "{'CPU': 1.0}" in str(result.error) for result in results.values())

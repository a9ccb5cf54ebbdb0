# SPDX-License-Identifier: Apache-2.0
"""HpccollConfig in a trainer of Ray Train."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


def train(config: dict[str, Any]) -> None:
    """The first attempt loses a rank; the second one writes what the ranks found."""
    import ray.train
    from numpy import ones

    import hpccoll

    world = hpccoll.init()
    hpccoll.allreduce(ones(1))
    flag = Path(config["folder"], "flag")
    if world.rank == 1 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    total = hpccoll.allreduce(ones(1000))[0]
    context = ray.train.get_context()
    found = f"{world.rank} {world.size} {context.get_world_rank()} {total}"
    Path(config["folder"], f"rank{world.rank}").write_text(found)
    ray.train.report({"size": world.size})


def test_a_lost_rank_is_named_and_ray_train_starts_anew(cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray.train.torch", reason="no Ray Train: pip install 'ray[train]' torch")
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from hpccoll.ray import HpccollConfig

    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": str(tmp_path)},
        torch_config=HpccollConfig(timeout_s=120),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "run"), failure_config=FailureConfig(max_failures=1)),
    )
    result = trainer.fit()
    assert result.error is None
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["0 2 0 2.0", "1 2 1 2.0"]
    assert (tmp_path / "flag").exists()

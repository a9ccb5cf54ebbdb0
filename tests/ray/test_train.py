# SPDX-License-Identifier: Apache-2.0
"""HpccollConfig in a trainer of Ray Train, which starts all workers again when one is lost or when it takes more."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray.train", reason="no Ray Train: pip install 'ray[train]'")
torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'ray[train]' torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

STEPS, ROWS = 12, 12
"""Steps, and rows of a step, which the ranks share: 1, 2 or 3 of them."""
Event = Callable[[str, int, int, int], None]
"""Called as event(folder, step, rank, size) before each step."""


def batch(step: int) -> tuple[Any, Any]:
    inputs = torch.from_numpy(np.random.default_rng(step).standard_normal((ROWS, 2)))
    return inputs, inputs @ torch.tensor([1.0, -2.0], dtype=torch.float64) + 0.5


def made() -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def step_with(model: Any, optimizer: Any, inputs: Any, labels: Any) -> None:
    optimizer.zero_grad()
    ((model(inputs)[:, 0] - labels) ** 2).mean().backward()
    optimizer.step()


def of_one_process() -> Any:
    model, optimizer = made()
    for step in range(STEPS):
        step_with(model, optimizer, *batch(step))
    return weights(model.state_dict())


def weights(state: Any) -> Any:
    return torch.cat([one.ravel() for one in state.values()]).numpy()


def train(config: dict[str, Any]) -> None:
    """Goes on from the last checkpoint; rank 0 saves one after each step."""
    import ray.train

    import hpccoll.torch as hvd

    hvd.init()
    context = ray.train.get_context()
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    model, optimizer = made()
    done = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        done = state["steps"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for step in range(done, STEPS):
        config["event"](config["folder"], step, hvd.rank(), hvd.size())
        inputs, labels = batch(step)
        step_with(model, optimizer, inputs[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()])
        saved = None
        if hvd.rank() == 0:
            path = Path(config["folder"], f"checkpoint{step}")
            path.mkdir(exist_ok=True)
            state = {"steps": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, path / "state.pt")
            saved = ray.train.Checkpoint.from_directory(path)
        ray.train.report({"step": step, "size": hvd.size(), "began": done}, checkpoint=saved)


def fit(event: Event, folder: Path, failures: int, **scaling: Any) -> tuple[Any, list[tuple[int, int]]]:
    """Train; returns Ray's result, and the size and the first step of each attempt that made a step."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from hpccoll.ray import HpccollConfig

    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": str(folder), "event": event},
        torch_config=HpccollConfig(timeout_s=120),
        scaling_config=ScalingConfig(**scaling),
        run_config=RunConfig(storage_path=str(folder / "run"), failure_config=FailureConfig(max_failures=failures)),
    )
    result = trainer.fit()
    attempts = [(metrics["size"], metrics["began"]) for _, metrics in result.best_checkpoints]
    return result, list(dict.fromkeys(attempts))


def check(result: Any) -> None:
    with result.checkpoint.as_directory() as folder:
        state = torch.load(Path(folder, "state.pt"))
    assert state["steps"] == STEPS
    np.testing.assert_allclose(weights(state["model"]), of_one_process(), rtol=1e-12)


def kills_two(folder: str, step: int, rank: int, _size: int) -> None:
    """Rank 1 is killed before step 5, and then rank 0 before step 8."""
    flag = Path(folder, f"killed{rank}")
    if (step, rank) in ((5, 1), (8, 0)) and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_lost_ranks_and_the_last_checkpoint(cluster: Any, tmp_path: Path) -> None:
    """Ray Train starts all workers again, and the weights are those of one process with all rows."""
    result, attempts = fit(kills_two, tmp_path, 2, num_workers=2)
    check(result)
    first, second, third = attempts
    assert (first, second[0], third[0]) == ((2, 0), 2, 2)
    assert 1 <= second[1] <= 5 <= third[1] <= 8  # the last report of a rank that is killed may be lost


def test_a_failure_too_many_names_the_lost_rank(cluster: Any, tmp_path: Path) -> None:
    from ray.train import WorkerGroupError

    with pytest.raises(WorkerGroupError) as raised:
        fit(kills_two, tmp_path, 0, num_workers=2)
    assert "rank 1 " in "".join(map(str, raised.value.worker_failures.values())).lower()


def waits_for_nodes(folder: str, step: int, rank: int, size: int) -> None:
    """With two ranks step 4 waits until there are three, and with three step 8 waits until one is lost."""
    if (step, size) not in ((4, 2), (8, 3)):
        return
    Path(folder, f"size{size}").touch()
    time.sleep(90)
    raise TimeoutError(f"rank {rank} still has {size} ranks in step {step}")


def await_file(fitted: Any, path: Path) -> None:
    """Wait for a file, or for the end of the training."""
    while not path.exists() and not fitted.done():
        time.sleep(0.2)


def test_ranks_come_and_go(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Train's elastic scaling: a node comes, and goes again, which Ray learns after its next start has failed."""
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "60")
    node = {"num_cpus": 2, "object_store_memory": 100 << 20}
    nodes = [cluster.add_node(**node, resources={"slot": 2})]
    scaling = {"num_workers": (1, 3), "resources_per_worker": {"CPU": 1, "slot": 1}}
    with ThreadPoolExecutor(1) as thread:
        fitted = thread.submit(fit, waits_for_nodes, tmp_path, 2, **scaling, elastic_resize_monitor_interval_s=2.0)
        await_file(fitted, tmp_path / "size2")
        nodes.append(cluster.add_node(**node, resources={"slot": 1}))
        await_file(fitted, tmp_path / "size3")
        cluster.remove_node(nodes.pop(), allow_graceful=False)
        result, attempts = fitted.result()
    cluster.remove_node(nodes.pop())
    check(result)
    first, second, third = attempts
    assert (first, second[0], third[0]) == ((2, 0), 3, 2)
    assert 1 <= second[1] <= 4 <= third[1] <= 8

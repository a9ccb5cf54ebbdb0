# SPDX-License-Identifier: Apache-2.0
"""Rows of Ray Data: each rank trains with its shard, and the weights are those of one process with the rows of all."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'ray[train]' torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

PAGE = Path(__file__).parents[2] / "docs" / "ray-and-spark.md"
RATE, EPOCHS, BATCH = 0.1, 2, 8
Steps = list[Any]


def rows(count: int) -> list[dict[str, float]]:
    values = np.random.default_rng(3).standard_normal((count, 2))
    return [{"a": float(a), "b": float(b), "y": float(a - 2 * b + 0.5)} for a, b in values]


def linear() -> Any:
    torch.manual_seed(3)
    return torch.nn.Linear(2, 1).double()


def loss_of(model: Any, batch: dict[str, Any]) -> Any:
    return ((model(torch.stack([batch["a"], batch["b"]], 1))[:, 0] - batch["y"]) ** 2).mean()


def weights(model: Any) -> Any:
    return torch.cat([one.detach().ravel() for one in model.parameters()]).numpy()


def steps(model: Any, optimizer: Any, shard: Any) -> Iterator[Any]:
    """Train one epoch; yields the rows of each step."""
    for batch in shard.iter_torch_batches(batch_size=BATCH):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        yield np.stack([batch[name].numpy() for name in ("a", "b", "y")], 1)


def save(folder: str, rank: int, seen: Steps, model: Any) -> None:
    np.savez(Path(folder, f"rank{rank}.npz"), *seen, weights=weights(model))


def loaded(folder: Path, ranks: int) -> tuple[list[Steps], list[Any]]:
    """The rows of each step, by rank, and the weights."""
    files = [np.load(folder / f"rank{rank}.npz") for rank in range(ranks)]
    return [[file[f"arr_{at}"] for at in range(len(file.files) - 1)] for file in files], [f["weights"] for f in files]


def of_one_process(seen: list[Steps], steps_of: int) -> Any:
    """The weights of one process that makes the same steps: in each the mean of the ranks' gradients, 0 without one."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for at in range(steps_of):
        optimizer.zero_grad()
        for own in seen:
            if at < len(own):
                a, b, y = torch.from_numpy(own[at]).T
                (loss_of(model, {"a": a, "b": b, "y": y}) / len(seen)).backward()
        optimizer.step()
    return weights(model)


def with_hvd(config: dict[str, Any]) -> None:
    import ray.train

    import hpccoll.torch as hvd

    hvd.init()
    model, shard = linear(), ray.train.get_dataset_shard("train")
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), RATE), model.named_parameters())
    seen: Steps = []
    for epoch in range(EPOCHS):
        seen += steps(model, optimizer, shard)
        ray.train.report({"epoch": epoch})
    save(config["folder"], hvd.rank(), seen, model)


def with_ddp(config: dict[str, Any]) -> None:
    """As the example of TorchTrainer's docstring."""
    import ray.train.torch

    if config["makes_the_group"]:
        torch.distributed.init_process_group("hpccoll")
    assert torch.distributed.get_backend() == "hpccoll"
    model = ray.train.torch.prepare_model(linear())
    shard = ray.train.get_dataset_shard("train")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    seen: Steps = []
    for epoch in range(EPOCHS):
        seen += steps(model, optimizer, shard)
        ray.train.report({"epoch": epoch})
    save(config["folder"], torch.distributed.get_rank(), seen, model)


@pytest.mark.parametrize("way", ["hvd", "group of the function", "group of Ray's TorchConfig"])
def test_shards_of_a_trainer(cluster: Any, tmp_path: Path, way: str) -> None:
    pytest.importorskip("ray.train.torch", reason="no Ray Train: pip install 'ray[train]'")
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from hpccoll.ray import HpccollConfig

    rays = way == "group of Ray's TorchConfig"
    trainer = TorchTrainer(
        with_hvd if way == "hvd" else with_ddp,
        train_loop_config={"folder": str(tmp_path), "makes_the_group": not rays},
        torch_config=TorchConfig(backend="hpccoll") if rays else HpccollConfig(timeout_s=120),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "run")),
        datasets={"train": ray.data.from_items(rows(101), override_num_blocks=5)},
    )
    trainer.fit()
    seen, found = loaded(tmp_path, 2)
    for own in seen:  # the shards are equal, and so one row of 101 is left out of each epoch
        assert [len(step) for step in own] == EPOCHS * [8, 8, 8, 8, 8, 8, 2]
    epoch = np.concatenate([step for own in seen for step in own[:7]])
    assert len(np.unique(epoch, axis=0)) == 100
    for own in found:
        np.testing.assert_allclose(own, of_one_process(seen, len(seen[0])), rtol=1e-12)


def on_shards(folder: str, shards: list[Any]) -> int:
    import hpccoll.torch as hvd

    hvd.init()
    model = linear()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), RATE), model.named_parameters())
    seen: Steps = []
    for _ in range(EPOCHS):
        seen += steps(model, optimizer, shards[hvd.rank()])
    save(folder, hvd.rank(), seen, model)
    return len(seen)


def until_all_have_joined(folder: str, shards: list[Any]) -> int:
    """One epoch; the parameters come from the rank that joined last, as Horovod's documentation has it."""
    import hpccoll.torch as hvd

    hvd.init()
    model = linear()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), RATE), model.named_parameters())
    seen = list(steps(model, optimizer, shards[hvd.rank()]))
    last: int = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    save(folder, hvd.rank(), seen, model)
    return last


@pytest.fixture
def executor(cluster: Any) -> Iterator[Any]:
    from hpccoll.ray import RayExecutor

    made = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=2)
    made.start()
    yield made
    made.shutdown()


def test_shards_of_an_executor(executor: Any, tmp_path: Path) -> None:
    import ray

    shards = ray.data.from_items(rows(96), override_num_blocks=4).streaming_split(2, equal=True)
    assert executor.run(on_shards, args=[str(tmp_path), shards]) == [EPOCHS * 6] * 2
    seen, found = loaded(tmp_path, 2)
    assert len(np.unique(np.concatenate([step for own in seen for step in own[:6]]), axis=0)) == 96
    for own in found:
        np.testing.assert_allclose(own, of_one_process(seen, EPOCHS * 6), rtol=1e-12)


def test_shards_of_unequal_lengths(executor: Any, tmp_path: Path) -> None:
    """The rank with fewer rows joins: in the steps that it does not make, its gradient is 0."""
    import ray

    shards = ray.data.from_items(rows(80)).split_at_indices([24])
    assert executor.run(until_all_have_joined, args=[str(tmp_path), shards]) == [1, 1]
    seen, found = loaded(tmp_path, 2)
    assert [len(own) for own in seen] == [3, 7]
    for own in found:
        np.testing.assert_allclose(own, of_one_process(seen, 7), rtol=1e-12)


def test_the_page(cluster: Any) -> None:
    section = PAGE.read_text().partition("### Rows of Ray Data")[2].partition("\n##")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), {"__name__": "page"})

# SPDX-License-Identifier: Apache-2.0
"""The training of a LightningModule on a rank, by Lightning's Trainer over hpccoll's DDP backend; without Spark.

The Trainer sees each rank as a node with one device. Batches of a step may have different sizes, so the strategy
multiplies a rank's loss by its share of the rows before backward(), and the logs have the loss of the module.
"""

import importlib
import inspect
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import hpccoll.torch as hvd
from hpccoll.default_world import current
from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.job import Feed, Job, Source, floats, labels_of, shaped
from hpccoll.spark.estimators.rows import Batch
from hpccoll.spark.torch.training import inputs, on_host, outputs

__all__ = ["FIXED", "module_class", "train"]

FIXED = {"accelerator", "callbacks", "devices", "logger", "max_epochs", "num_nodes", "strategy"}
"""The arguments of the Trainer that the estimator sets."""


def module_class(model: Any) -> Any:
    """Return the class LightningModule of a model, that of `lightning` or of `pytorch_lightning`; None: it has none."""
    bases = (cls for cls in type(model).__mro__ if cls.__name__ == "LightningModule")
    return next((cls for cls in bases if cls.__module__.startswith(("lightning.", "pytorch_lightning."))), None)


def train(source: Source, job: Job) -> Any:
    """Train the module; all ranks call this.

    :returns: on rank 0 the history, the state of the module, and how many numbers each output has per row; None on
        others
    """
    hvd.init()
    dist.init_process_group("hpccoll")
    torch.manual_seed(job.seed + hvd.rank())
    model, feed = job["model"], Feed(job, source)
    widths = _widths(model, feed, job)
    history = _fit(model, feed, job)
    result = (history, on_host(model.state_dict()), widths) if hvd.rank() == 0 else None
    dist.destroy_process_group()
    hvd.shutdown()
    return result


def _widths(model: Any, feed: Feed, job: Job) -> dict[str, int]:
    """Count the numbers per row of each output.

    :raises InvalidArgumentError: there are other numbers of outputs and labels
    """
    columns = next(feed.training(0)).columns
    modes = [(module, module.training) for module in model.modules()]  # a frozen part stays in the mode of evaluation
    model.eval()
    with torch.no_grad():
        results = outputs(model(*inputs(model, columns, job.features, job["input_shapes"], "cpu")))
    for module, mode in modes:
        module.training = mode
    if len(results) != len(job.labels):
        raise InvalidArgumentError(f"the model has {len(results)} outputs, and there are {len(job.labels)} labels")
    return {name: out[0].numel() if out.ndim else 1 for name, out in zip(job.labels, results, strict=True)}


class _Loader:
    """The batches as Lightning takes them: dicts of tensors by the names of columns."""

    def __init__(self, job: Job, steps: int, batches: Callable[[], Iterator[Batch]]) -> None:
        self._job, self._steps, self._batches = job, steps, batches
        self.factors: list[float] = []
        """The factors of the batches of this epoch, up to now."""

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.factors = []
        for batch in self._batches():
            self.factors.append(batch.factor)
            yield self._made(batch)

    def _made(self, batch: Batch) -> dict[str, torch.Tensor]:
        job, columns = self._job, batch.columns
        features = shaped([floats(columns[name], name) for name in job.features], job["input_shapes"], job.features)
        labels = labels_of(columns, job.labels, job["label_shapes"], floats)
        made = dict(zip((*job.features, *job.labels), (*features, *labels), strict=True))
        if job.weight:
            made[job.weight] = floats(columns[job.weight], job.weight)
        return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in made.items()}


def _fit(model: Any, feed: Feed, job: Job) -> list[Any]:
    """Train what is left to train, and return the history of all epochs."""
    state = job.resumed()
    history, done = state.get("history", []), state.get("epochs", 0)
    if done >= job["epochs"]:
        model.load_state_dict(state["module"])
        return list(history)
    lightning = importlib.import_module(module_class(model).__module__.partition(".core")[0])
    held = 0
    if feed.validates:
        feed.check_validation()
        held = feed.common_validation_steps()
    with tempfile.TemporaryDirectory(prefix="hpccoll-") as folder:
        training = _Loader(job, feed.steps, lambda: feed.training(trainer.current_epoch))
        validation = _Loader(job, held, feed.common_validation)
        epochs = _epochs(lightning, job, training, history, Path(folder))
        trainer = _trainer(lightning, job, epochs, folder)
        options: dict[str, Any] = {}
        if state:
            options["ckpt_path"] = Path(folder, "resumed.ckpt")
            options["ckpt_path"].write_bytes(state["trainer"])
            if "weights_only" in inspect.signature(trainer.fit).parameters:
                options["weights_only"] = False  # the file is ours
        trainer.fit(model, training, validation if held else None, **options)
    return list(history)


def _trainer(lightning: Any, job: Job, epochs: Any, folder: str) -> Any:
    """Make the Trainer, which sees as many nodes of one device as there are ranks."""
    gpu = job["use_gpu"] and torch.cuda.is_available()
    callbacks, given = [*(job["callbacks"] or []), epochs], dict(job["trainer_args"] or {})
    if given.pop("enable_checkpointing", False) and not any(
        isinstance(one, lightning.callbacks.ModelCheckpoint) for one in callbacks
    ):
        callbacks.insert(0, lightning.callbacks.ModelCheckpoint())  # which the Trainer adds where there is no `epochs`
    settings = {
        "accumulate_grad_batches": job["backward_passes_per_step"],
        "default_root_dir": folder,
        "enable_checkpointing": True,  # of the callbacks
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        **given,
    }
    return lightning.Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=[hvd.local_rank() % torch.cuda.device_count()] if gpu else 1,
        num_nodes=hvd.size(),
        strategy=_strategy(lightning, hvd.size() if job["scale_learning_rate"] else 1),
        callbacks=callbacks,
        logger=job["logger"] or False,
        max_epochs=job["epochs"],
        **settings,
    )


def _strategy(lightning: Any, scale: int) -> Any:
    """Make the strategy: DDP over the process group that the ranks have made already."""
    package = lightning.__name__

    class Ranks(importlib.import_module(f"{package}.plugins.environments").LightningEnvironment):  # type: ignore[misc]
        """The ranks as Lightning sees them."""

        creates_processes_externally = True

        def world_size(self) -> int:
            return int(hvd.size())

        def global_rank(self) -> int:
            return int(hvd.rank())

        def node_rank(self) -> int:
            return int(hvd.rank())

        def local_rank(self) -> int:
            return 0

    class Strategy(importlib.import_module(f"{package}.strategies").DDPStrategy):  # type: ignore[misc]
        """DDP whose steps have the mean over the rows of all ranks."""

        factor = 1.0

        def setup_optimizers(self, trainer: Any) -> None:
            super().setup_optimizers(trainer)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group.update({name: group[name] * scale for name in ("lr", "initial_lr") if name in group})
            for config in self.lr_scheduler_configs:
                if hasattr(config.scheduler, "base_lrs"):
                    config.scheduler.base_lrs = [rate * scale for rate in config.scheduler.base_lrs]

        def backward(self, closure_loss: Any, *args: Any, **options: Any) -> Any:
            return super().backward(closure_loss * self.factor, *args, **options)

    return Strategy(cluster_environment=Ranks(), process_group_backend="hpccoll")


def _means(everywhere: list[dict[str, float]]) -> dict[str, float]:
    """Return the means of what the ranks have logged, over the ranks that have logged it."""
    names = dict.fromkeys(name for one in everywhere for name in one)
    found = {name: [one[name] for one in everywhere if name in one] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}


def _epochs(lightning: Any, job: Job, training: _Loader, history: list[Any], folder: Path) -> Any:
    """Make the callback that keeps the history, and saves the state of the Trainer after each epoch."""

    class Epochs(lightning.callbacks.Checkpoint):
        """Lightning calls a Checkpoint behind the module's own on_train_epoch_end(), which may log, too."""

        def on_train_epoch_start(self, trainer: Any, _module: Any) -> None:
            self._before = dict(trainer.callback_metrics)  # what earlier epochs have logged stays there

        def on_train_batch_start(self, trainer: Any, _module: Any, _batch: Any, batch_idx: int) -> None:
            trainer.strategy.factor = training.factors[batch_idx]

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            metrics, before = trainer.callback_metrics, self._before
            new = {name: float(value) for name, value in metrics.items() if value is not before.get(name)}
            history.append({"epoch": trainer.current_epoch, **_means(current().allgather_object(new))})
            if hvd.rank() == 0 and job["verbose"]:
                print(history[-1], flush=True)
            if job["store"] is None or not job["store"].saving_runs():
                return
            trainer.save_checkpoint(folder / "epoch.ckpt")
            if hvd.rank() == 0:
                state = {"trainer": (folder / "epoch.ckpt").read_bytes(), "module": on_host(module.state_dict())}
                job.save({**state, "epochs": trainer.current_epoch + 1, "history": history})

    return Epochs()

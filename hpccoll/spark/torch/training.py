# SPDX-License-Identifier: Apache-2.0
"""The training of a module on a rank, over its batches; without Spark."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import hpccoll.torch as hvd
from hpccoll.default_world import current
from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.job import Feed, Job, Source, floats, inputs_of, labels_of
from hpccoll.spark.estimators.rows import Arrays, Batch

__all__ = ["check_inputs", "inputs", "listed", "on_host", "one_each", "outputs", "train"]


def train(source: Source, job: Job) -> Any:
    """Train the model; all ranks call this.

    :returns: on rank 0 the history, the state of model and optimizer, and how many numbers each output has per row;
        None on others
    """
    hvd.init()
    torch.manual_seed(job.seed + hvd.rank())
    trainer = _Trainer(job, Feed(job, source))
    history = trainer.run()
    result = (history, trainer.state(), trainer.widths) if hvd.rank() == 0 else None
    hvd.shutdown()
    return result


def inputs(model: Any, columns: Arrays, features: Sequence[str], shapes: Any, device: Any) -> list[torch.Tensor]:
    """Make the arguments of a module's forward() of the columns of features."""
    parts = inputs_of(columns, features, _count(model, shapes, len(features)), shapes, floats)
    return [torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts]


def outputs(result: Any) -> list[torch.Tensor]:
    """Return the outputs of a module as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def check_inputs(model: Any, shapes: Any, columns: int) -> None:
    """Check that a module has as many arguments as there are columns, or one.

    :raises InvalidArgumentError: it has another number
    """
    count = _count(model, shapes, columns)
    if count not in (1, columns):
        raise InvalidArgumentError(f"the model has {count} inputs, and there are {columns} columns of features")


def _count(model: Any, shapes: Any, columns: int) -> int:
    """Count the inputs of a module: the shapes, or the arguments that forward() needs."""
    if shapes:
        return len(shapes)
    given = inspect.signature(model.forward).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in given):
        return columns
    plain = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is one.empty for one in plain)
    return columns if needed <= columns <= len(plain) else needed


class _Means:
    """Means over the rows of all ranks, of values that are means over the rows of a batch."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._rows = 0

    def add(self, values: dict[str, float], rows: int) -> None:
        self._rows += rows
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + (value * rows if rows else 0.0)

    def over_ranks(self) -> dict[str, float]:
        everywhere = current().allgather_object((self._sums, self._rows))
        rows = sum(count for _, count in everywhere)
        names = dict.fromkeys(name for sums, _ in everywhere for name in sums)
        return {name: sum(sums.get(name, 0.0) for sums, _ in everywhere) / max(rows, 1) for name in names}


class _Trainer:
    """The state of a training on this rank."""

    def __init__(self, job: Job, feed: Feed) -> None:
        self._job, self._feed = job, feed
        self._device = torch.device("cpu")
        if job["use_gpu"] and torch.cuda.is_available():
            self._device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        self._model, optimizer = job["model"].to(self._device), job["optimizer"]
        makers = job["loss_constructors"]
        losses = [make() for make in listed(makers)] if makers else listed(job["loss"])
        self._losses = one_each(losses, len(job.labels), "losses")
        self._weights = one_each(job["loss_weights"] or [1 / len(job.labels)], len(job.labels), "loss_weights")
        self._groups = [one_each(listed(group), len(job.labels), "metrics") for group in job["metrics"] or []]
        self._scale = hvd.size() if job["scale_learning_rate"] else 1
        self._resume(optimizer)
        options = {"compression": job["gradient_compression"]} if job["gradient_compression"] else {}
        self._optimizer = hvd.DistributedOptimizer(
            optimizer,
            self._model.named_parameters(),
            backward_passes_per_step=job["backward_passes_per_step"],
            **options,
        )
        self._minibatch = job["train_minibatch_fn"] or self._plain_minibatch
        self._pass = 0
        self.widths: dict[str, int] = {}

    def _resume(self, optimizer: Any) -> None:
        state = self._job.resumed()
        self._done: int = state.get("epochs", 0)
        self._history: list[Any] = state.get("history", [])
        if state:
            self._model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        hvd.broadcast_parameters(self._model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self._scale

    def state(self) -> dict[str, Any]:
        """Return the state of model and optimizer, in host memory, with the rate of a single rank."""
        optimizer = copy.deepcopy(self._optimizer.state_dict())
        for group in optimizer["param_groups"]:
            group["lr"] = group["lr"] / self._scale
        return {"model": on_host(self._model.state_dict()), "optimizer": on_host(optimizer)}

    def run(self) -> list[Any]:
        """Train all epochs, and return the history."""
        for epoch in range(self._done, self._job["epochs"]):
            entry: dict[str, Any] = {"epoch": epoch, "train": self._train(epoch)}
            if self._feed.validates:
                entry["validation"] = self._validate()
            self._history.append(entry)
            if hvd.rank() == 0:
                if self._job["verbose"]:
                    print(entry, flush=True)
                self._job.save({**self.state(), "epochs": epoch + 1, "history": self._history})
        if not self.widths:
            self._validate_one()
        return self._history

    def _train(self, epoch: int) -> dict[str, Any]:
        self._model.train()
        means = _Means()
        for batch in self._feed.training(epoch):
            results, labels, weights = self._prepared(batch)

            def loss_of(outs: Any, targets: Any, weights: Any = weights, factor: float = batch.factor) -> torch.Tensor:
                return self._loss(outs, targets, weights) * factor

            results, loss = self._minibatch(
                self._model, self._optimizer, self._transformed, loss_of, results, labels, weights
            )
            means.add(self._values(results, labels, float(loss.detach()) / (batch.factor or 1.0)), batch.rows)
        return self._summary(means)

    def _plain_minibatch(
        self, model: Any, optimizer: Any, transform: Any, loss_fn: Any, arguments: Any, labels: Any, weights: Any
    ) -> tuple[Any, torch.Tensor]:
        passes = self._job["backward_passes_per_step"]
        if self._pass % passes == 0:
            optimizer.zero_grad()
        results, labels = transform(model(*arguments), labels)
        loss = loss_fn(results, labels, weights)
        loss.backward()
        self._pass += 1
        if self._pass % passes == 0:
            optimizer.step()
        return results, loss

    def _validate(self) -> dict[str, Any]:
        self._model.eval()
        means = _Means()
        with torch.no_grad():
            for batch in self._feed.validation():
                arguments, labels, weights = self._prepared(batch)
                results, labels = self._transformed(self._model(*arguments), labels)
                means.add(self._values(results, labels, float(self._loss(results, labels, weights))), batch.rows)
        return self._summary(means)

    def _validate_one(self) -> None:
        """Learn the shapes of outputs, if a run had nothing left to train."""
        self._model.eval()
        with torch.no_grad():
            arguments, labels, _ = self._prepared(next(self._feed.training(0)))
            self._transformed(self._model(*arguments), labels)

    def _prepared(self, batch: Batch) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]:
        job = self._job
        arguments = inputs(self._model, batch.columns, job.features, job["input_shapes"], self._device)
        labels = [
            torch.from_numpy(np.ascontiguousarray(part)).to(self._device)
            for part in labels_of(batch.columns, job.labels, job["label_shapes"], floats)
        ]
        if not job.weight:
            return arguments, labels, None
        return arguments, labels, torch.from_numpy(floats(batch.columns[job.weight], job.weight)).to(self._device)

    def _transformed(self, results: Any, labels: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Give labels the shapes of outputs, where both have as many numbers."""
        results = outputs(results)
        if len(results) != len(labels):
            raise InvalidArgumentError(f"the model has {len(results)} outputs, and there are {len(labels)} labels")
        widths = [result[0].numel() if result.ndim else 1 for result in results]
        self.widths = dict(zip(self._job.labels, widths, strict=True))
        pairs = zip(results, labels, strict=True)
        return results, [label.reshape(out.shape) if out.numel() == label.numel() else label for out, label in pairs]

    def _loss(self, results: Any, labels: Any, weights: Any) -> torch.Tensor:
        parts = zip(self._losses, self._weights, results, labels, strict=True)
        if weights is None:
            return sum(loss(out, label) * factor for loss, factor, out, label in parts)  # type: ignore[no-any-return]
        return sum(  # type: ignore[no-any-return]
            (_each(loss, out, label).reshape(len(weights), -1).mean(1) * weights).mean() * factor
            for loss, factor, out, label in parts
        )

    def _values(self, results: Any, labels: Any, loss: float) -> dict[str, float]:
        values = {"loss": loss}
        pairs = list(zip(self._job.labels, results, labels, strict=True))
        for number, group in enumerate(self._groups):
            for metric, (name, out, label) in zip(group, pairs, strict=True):
                like = label.reshape(out.shape) if out.numel() == label.numel() else label
                values[f"group_{number}_{name}"] = float(metric(out.detach(), like))
        return values

    def _summary(self, means: _Means) -> dict[str, Any]:
        values = means.over_ranks()
        groups = [
            {name: value for name, value in values.items() if name.startswith(f"group_{number}_")}
            for number in range(len(self._groups))
        ]
        return {"loss": values.get("loss", float("nan")), "all_metrics": groups}


def _each(loss: Any, out: torch.Tensor, label: torch.Tensor) -> Any:
    """Return the loss of each row."""
    if isinstance(loss, torch.nn.Module):
        loss = copy.copy(loss)
        loss.reduction = "none"
        return loss(out, label)
    return loss(out, label, reduction="none")


def listed(value: Any) -> list[Any]:
    """Return one thing, or several, as a list."""
    return list(value) if isinstance(value, tuple | list) else [value]


def one_each(values: Sequence[Any], labels: int, name: str) -> list[Any]:
    """Return a value for each label.

    :raises InvalidArgumentError: there is neither one value nor one per label
    """
    if len(values) not in (1, labels):
        raise InvalidArgumentError(f"there are {len(values)} {name} for {labels} labels: give one, or one per label")
    return list(values) * (labels if len(values) == 1 else 1)


def on_host(value: Any) -> Any:
    """Copy the tensors of a state into host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    return [on_host(each) for each in value] if isinstance(value, list) else value

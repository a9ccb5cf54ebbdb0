# SPDX-License-Identifier: Apache-2.0
"""The state of a run: loss scale, history, and the checkpoint that holds both and the network."""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
from device import to_host
from network import Network

import hpccoll

FIXED = ("seed", "per_shard", "rate", "overflow_step")
"""Options that a continued run cannot change."""


@dataclass
class LossScale:
    """The loss scale: it doubles after `patience` steps without overflow, and halves with each overflow."""

    value: float = 1024.0
    patience: int = 100
    good_steps: int = 0

    def update(self, overflow: bool) -> None:
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.value /= 2
        elif self.good_steps == self.patience:
            self.value, self.good_steps = self.value * 2, 0


@dataclass
class History:
    loss: list[float] = field(default_factory=list)  # one per step, of this rank's part of the batch
    scale: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)  # steps skipped because of an overflow


def save(path: Path, options: argparse.Namespace, network: Network, scale: LossScale, history: History) -> None:
    """Let rank 0 write the common state of all ranks, and the mean of their losses, as a whole file or not at all."""
    loss = hpccoll.allreduce(np.array(history.loss), hpccoll.AVERAGE, name="losses so far")
    if hpccoll.rank() == 0:
        partial = path.with_suffix(".partial")
        with h5py.File(partial, "w") as file:
            file.attrs.update({name: getattr(options, name) for name in FIXED})
            file.attrs.update(loss_scale=scale.value, good_steps=scale.good_steps)
            file["loss"], file["loss_scale"], file["skipped"] = loss, history.scale, history.skipped
            for name in network.masters:
                file[f"weights/{name}"] = to_host(network.masters[name])
                file[f"velocity/{name}"] = to_host(network.velocity[name])
        os.replace(partial, path)
    hpccoll.barrier(name="saved")


def load(path: Path, options: argparse.Namespace, network: Network) -> tuple[LossScale, History]:
    """Read the checkpoint on all ranks, to continue its run."""
    with h5py.File(path) as file:
        changed = {name: file.attrs[name] for name in FIXED if file.attrs[name] != getattr(options, name)}
        if changed:
            raise SystemExit(f"{path} is of a run with {changed}: repeat its options, or take the file away")
        network.restore(
            {name: file[f"weights/{name}"][:] for name in network.masters},
            {name: file[f"velocity/{name}"][:] for name in network.masters},
        )
        scale = LossScale(float(file.attrs["loss_scale"]), good_steps=int(file.attrs["good_steps"]))
        return scale, History(file["loss"][:].tolist(), file["loss_scale"][:].tolist(), file["skipped"][:].tolist())

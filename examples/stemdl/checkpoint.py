# SPDX-License-Identifier: Apache-2.0
"""The state with which a training goes on after its job has ended. Rank 0 writes and reads it, and sends it to all."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import hpccoll.torch as hvd

if TYPE_CHECKING:
    from train import Training


class Checkpoint:
    """One file, replaced as a whole: a job that is killed while it writes leaves the previous file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, training: "Training") -> None:
        if hvd.rank() != 0:
            return
        state = {name: part.state_dict() for name, part in _parts(training).items()}
        state |= {"epoch": training.epoch, "losses": training.losses}
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.path)

    def load(self, training: "Training") -> None:
        """Continue from the file, if there is one. The earlier losses are rank 0's."""
        found = torch.load(self.path, weights_only=True) if hvd.rank() == 0 and self.path.exists() else None
        state = hvd.broadcast_object(found, 0)
        if state is None:
            return
        for name, part in _parts(training).items():
            part.load_state_dict(state[name])
        training.epoch, training.losses = state["epoch"], state["losses"]


def _parts(training: "Training") -> dict[str, object]:
    return {
        "model": training.plain,
        "optimizer": training.averaging.optimizer,
        "schedule": training.schedule,
        "scaler": training.scaler,
    }

# SPDX-License-Identifier: Apache-2.0
"""The picture of a training: its losses, and beside them those of one process."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure


def draw(path: Path, losses: np.ndarray, compared: np.ndarray | None, validation: float) -> Path:
    """Draw the losses in nats per token into a PNG file; return its path."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    axes.plot(losses, label="all ranks")
    if compared is not None:
        axes.plot(compared, "--", label="one process")
    axes.plot([len(losses) - 1], [validation], "o", label="validation")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    return path

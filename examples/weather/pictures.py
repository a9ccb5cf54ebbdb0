# SPDX-License-Identifier: Apache-2.0
"""The picture at the end: the weather as simulated and as forecast, and how the errors grew."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(folder: Path, forecast: Any, losses: list[float]) -> Path:
    """Draw the depths, the errors of the forecast and the losses into a PNG file; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(8, 5.6), layout="constrained")
    maps, curves = figure.subfigures(2, 1, height_ratios=(3, 2))
    axes = maps.subplots(1, 3, sharey=True)
    highest = abs(forecast.simulation[0]).max()
    fields = [forecast.begin, forecast.simulation, forecast.network]
    for place, field, title in zip(axes, fields, ("begin", "simulation", "network"), strict=True):
        image = place.imshow(field[0], origin="lower", cmap="RdBu_r", vmin=-highest, vmax=highest)
        place.set_title(title)
    maps.colorbar(image, ax=axes, label="depth, deviation from its mean")
    left, right = curves.subplots(1, 2)
    leaps = range(1, len(forecast.of_network) + 1)
    left.plot(leaps, forecast.of_network, label="network")
    left.plot(leaps, forecast.of_no_change, "--", label="no change")
    left.set(xlabel="leap of the forecast", ylabel="error / size of the fields", ylim=0)
    left.legend(frameon=False)
    right.semilogy(range(1, len(losses) + 1), losses)
    right.set(xlabel="day", ylabel="loss of the training")
    path = folder / "forecast.png"
    figure.savefig(path, dpi=120)
    return path

# SPDX-License-Identifier: Apache-2.0
"""The weather: its simulation is the same on any number of ranks, and the network's forecast is better than none."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpccoll import testing

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "weather"
MODULES = ("atmosphere",)
PROGRAM = "examples/weather/train.py"
SHORT = ("--days", 3, "--updates", 40, "--cells", 48, "--batch", 12, "--forecast", 8)


@pytest.fixture(scope="module")
def atmosphere(modules: Any) -> Any:
    return modules.atmosphere


def simulated(atmosphere: Any, ranks: int, nodes: str) -> np.ndarray:
    """The whole fields after 12 steps."""
    cells, whole = 24, np.zeros((3, 24, 24))

    def program(world: Any) -> None:
        air = atmosphere.Atmosphere(world, cells)
        air.stir(7)
        for _ in range(12):
            air.step()
        whole[tuple(slice(at, at + n) for at, n in zip(air.offset, air.own.shape, strict=True))] = air.own

    worlds = testing.threads(ranks, nodes=nodes)
    testing.run(worlds, program)
    testing.run(worlds, lambda world: world.shutdown())
    return whole


def test_the_fields_are_the_same_bit_for_bit(atmosphere: Any) -> None:
    alone = simulated(atmosphere, 1, "")
    assert np.isfinite(alone).all() and abs(alone).max() > 1e-3
    for ranks, nodes in ((2, ""), (3, "2+1"), (4, "2+2"), (6, "")):
        np.testing.assert_array_equal(simulated(atmosphere, ranks, nodes), alone)


def test_small_waves_run_as_the_theory_says(atmosphere: Any) -> None:
    """Poincare waves: the square of the frequency is f^2 + g H k^2, and here gravity and depth are 1."""
    world = testing.threads(1)[0]
    air = atmosphere.Atmosphere(world, 64)
    k = 2 * np.pi / 32
    air.own[0] = 1e-6 * np.cos(k * np.arange(64))
    depths = []
    for _ in range(160):
        depths.append(air.own[0, 0, 0])
        air.step()
    world.shutdown()
    depths = np.array(depths)
    # A wave begins in still air: a steady part, in balance, and one that oscillates.
    steady = atmosphere.ROTATION**2 / (atmosphere.ROTATION**2 + k**2)
    waves = depths / 1e-6 - steady
    period = 2 * np.pi / np.sqrt(atmosphere.ROTATION**2 + k**2)
    crossings = np.flatnonzero(np.diff(np.sign(waves)))
    measured = 2 * atmosphere.TIME_STEP * np.diff(crossings).mean()
    assert measured == pytest.approx(period, rel=0.03)


def figures(output: str) -> tuple[float, ...]:
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+) of the variance", output).groups()
    network, nothing = re.search(r"error ([\d.]+)%; of no change ([\d.]+)%", output).groups()
    return tuple(map(float, (first, last, network, nothing)))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (4, 2)])
def test_the_forecast_is_better_than_none(job: Callable[..., str], tmp_path: Path, ranks: int, nodes: int) -> None:
    pytest.importorskip("torch")
    output = job(ranks, PROGRAM, *SHORT, "--folder", tmp_path, "--window", 12, HPCCOLL_NODES=nodes)
    first, last, network, nothing = figures(output)
    assert last < first / 4 and network < nothing / 2
    assert f"ranks {ranks}, 48^2 cells: 3 days" in output  # which compares the forecast with that of one process
    assert (tmp_path / "forecast.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_goes_on_from_a_checkpoint_on_another_number_of_ranks(job: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = (*SHORT, "--folder", tmp_path, "--window", 12, "--checkpoint", tmp_path / "weather.h5")
    assert "2 days" in job(2, PROGRAM, *options, "--days", 2)
    output = job(3, PROGRAM, *options, "--days", 4, HPCCOLL_NODES=2)
    assert "4 days" in output
    first, last, _, _ = figures(output)
    assert last < first / 4


@pytest.mark.slow
def test_impossible_options_are_refused(job: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = job(2, PROGRAM, "--folder", tmp_path, "--batch", 5, status=1)
    assert "--batch 5 cannot be shared by 2 ranks" in output
    output = job(2, PROGRAM, "--folder", tmp_path, "--cells", 25, status=1)
    assert "--cells: 25 cells cannot be divided among 2 x 1 ranks" in output

# SPDX-License-Identifier: Apache-2.0
"""The diffraction example: its physics, and its training whoever averages the gradients."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpccoll.tools.bench import files

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "stemdl"
SMALL = ("--samples", 12, "--validation", 8, "--batch", 12, "--growth", 4, "--layers", 1, "--epochs", 6)
STEPS = 6
MODULES = ("physics",)
PROGRAM = "examples/stemdl/train.py"


@pytest.fixture(scope="module")
def physics(modules):
    return modules.physics


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards that all runs share: the first run writes them."""
    return tmp_path_factory.mktemp("stemdl")


def error_of(output: str) -> float:
    return float(re.search(r"validation error ([\d.]+)% of the variance", output)[1]) / 100


# ---- physics ---------------------------------------------------------------------------------------


def test_constants_are_the_tables(physics) -> None:
    """Wavelength and interaction parameter as tabulated (Kirkland, table 2.2: 0.0251 A, 0.000729 rad / V A)."""
    microscope = physics.Microscope(volts=200e3)
    assert microscope.wavelength == pytest.approx(0.0251, abs=5e-5)
    assert microscope.interaction == pytest.approx(0.000729, abs=5e-7)


def test_vacuum_shows_the_aperture(physics) -> None:
    microscope = physics.Microscope(scan=2)
    patterns = physics.diffraction(np.zeros((microscope.pixels, microscope.pixels)), microscope)
    assert np.allclose(patterns.sum((2, 3)), 1, atol=1e-5), "the detector is wider than the aperture"
    assert np.allclose(patterns, patterns[0, 0], atol=1e-6), "the same everywhere"
    assert patterns[0, 0, 0, 0] < 1e-6 < patterns[0, 0, 4, 4], "dark beyond the aperture"


def test_the_beam_is_neither_made_nor_lost(physics) -> None:
    microscope = physics.Microscope(scan=4, detector_edge=40e-3)
    patterns, potential = physics.sample((7,), microscope)
    assert patterns.shape == (64, 4, 4) and potential.shape == (32, 32)
    assert patterns.sum(0).min() > 0.9 and patterns.sum(0).max() < 1 + 1e-4


def test_a_shifted_crystal_shifts_the_scan(physics) -> None:
    """Move the crystal by one step of the scan: the patterns move along, apart from the window's edge."""
    microscope = physics.Microscope(scan=8)
    crystal = physics.Crystal((4.0, 3.8), 0.0, (0.3, 0.1), (31, 14), 0.08)
    step = microscope.window / microscope.scan
    moved = replace(crystal, origin=(0.3 + step, 0.1))
    here, there = (
        physics.diffraction(physics.projected_potential(c, microscope), microscope) for c in (crystal, moved)
    )
    assert np.allclose(here[1:-2], there[2:-1], atol=2e-4)
    assert not np.allclose(here[1:-2], there[1:-2], atol=2e-3)


def test_weak_phase(physics) -> None:
    """A weak and thin object scatters out of the aperture in proportion to the square of the potential."""
    microscope = physics.Microscope(scan=2, slices=1)
    potential = physics.projected_potential(physics.Crystal.random(np.random.default_rng(1)), microscope)
    dark = physics.diffraction(0 * potential, microscope)[0, 0] < 1e-6
    once, twice = (physics.diffraction(factor * potential, microscope)[:, :, dark].sum() for factor in (0.05, 0.1))
    assert twice / once == pytest.approx(4, rel=0.02)


# ---- training --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(job, folder: Path) -> str:
    """The output of an uninterrupted run."""
    return job(2, PROGRAM, "--folder", folder, *SMALL, "--verify", HPCCOLL_NODES=1)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_training_matches_one_process(two_ranks: str, folder: Path) -> None:
    check_training(two_ranks, folder, ranks=2, nodes=1)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes", "passes"), [(4, 2, 1), (1, 1, 2), (3, 2, 2)])
def test_training_of_other_worlds_matches_one_process(job, folder: Path, ranks: int, nodes: int, passes: int) -> None:
    output = job(ranks, PROGRAM, "--folder", folder, *SMALL, "--passes", passes, "--verify", HPCCOLL_NODES=nodes)
    check_training(output, folder, ranks, nodes)


def check_training(output: str, folder: Path, ranks: int, nodes: int) -> None:
    assert f"ranks {ranks}, nodes {nodes}, optimizer: {STEPS} steps" in output
    assert "tolerated" in output and "GFLOP/s, all ranks" in output
    with h5py.File(folder / f"run-{ranks}-ranks.h5") as record:
        assert len(record["loss"]) == STEPS and record["loss"][-1] < record["loss"][0]
        assert all(len(record[f"seconds/{name}"]) == STEPS for name in ("input", "compute", "exposed", "step"))
        assert {"command", "host", "written", "torch", "hpccoll", "seed", "flops_a_step_and_rank"} <= set(record.attrs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_who_averages_makes_no_difference(job, folder: Path) -> None:
    errors = [
        error_of(job(2, PROGRAM, "--folder", folder, *SMALL, "--wire", "fp32", "--average", way))
        for way in ("optimizer", "ddp", "ddp-gloo")
    ]
    assert errors == pytest.approx([errors[0]] * 3, rel=0.02)


@pytest.mark.slow  # tests/preempt resumes a run in `make test`
@pytest.mark.timeout(200)
def test_resumed_training_is_the_uninterrupted_one(job, two_ranks: str, folder: Path, tmp_path: Path) -> None:
    parts = (PROGRAM, "--folder", folder, *SMALL, "--checkpoint", tmp_path / "parts.pt")
    job(2, *parts, "--stop-after", 1)
    output = job(2, *parts)
    assert f": {STEPS} steps" in output
    assert error_of(output) == pytest.approx(error_of(two_ranks), rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_study_of_the_example(tmp_path: Path) -> None:
    """Its file, with one launch per point: every launch has steps with parts, and the work of weak scaling doubles."""
    text = (FOLDER / "study.toml").read_text().replace("repetitions = 5", "repetitions = 1")
    text = text.replace('"python", "train.py"', f'"{sys.executable}", "{FOLDER}/train.py"')
    small = '"--growth", "4", "--layers", "1", "--levels", "1"'
    text = re.sub(r'"--growth", "\d+", "--layers", "\d+", "--levels", "\d+"', small, text)
    (tmp_path / "study.toml").write_text(text)
    for command in (["run"], ["collect"]):
        subprocess.run([sys.executable, "-m", "hpccoll", "study", *command, tmp_path / "study.toml"], check=True)
    samples = dict[str, float]()
    for file in (tmp_path / "stemdl.study" / "runs").glob("*.h5"):
        (case,) = files.read(file).cases.values()
        assert {"input", "compute", "update", "exposed communication"} <= set(case.parts), file
        samples[file.stem] = case.facts["items"]
    for wire in ("fp32", "fp16"):
        assert (samples[f"weak-2-nodes-{wire}-1"], samples[f"strong-2-nodes-{wire}-1"]) == (48, 24)


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_refused(job, folder: Path) -> None:
    output = job(2, PROGRAM, "--folder", folder, "--batch", 7, status=1)
    assert "--batch 7 cannot be shared by 2 ranks in 2 passes" in output


@pytest.mark.slow
def test_fewer_crystals_than_files_are_refused(job, folder: Path) -> None:
    output = job(1, PROGRAM, "--folder", folder, "--validation", 4, status=1)
    assert "--validation 4: each of the 8 files holds a crystal or more" in output

# SPDX-License-Identifier: Apache-2.0
"""The main example, stopped by a signal to one rank, then killed, and started again each time: the same result."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 14
"""An epoch has so many."""


def run(folder, checkpoint, nodes, ranks, epochs, *interruption):
    """Run it; return its status and output. `interruption`: a step and the signal that the last rank gets then."""
    launch = [sys.executable, "-m", "hpccoll", "run", "-np", str(ranks), "--timeout", "100", sys.executable]
    interrupted = [str(ROOT / "tests/preempt/interrupted.py"), *map(str, map(int, interruption))]
    options = ["--folder", str(folder), "--epochs", str(epochs), "--checkpoint", str(checkpoint)]
    knobs = {"OMP_NUM_THREADS": "1", "HPCCOLL_NODES": str(nodes), "HPCCOLL_DETERMINISTIC": "1"}
    done = subprocess.run(
        [*launch, *(interrupted if interruption else []), str(ROOT / "examples/digits/train.py"), *options],
        env=os.environ | knobs, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def steps_in(checkpoint):
    if not checkpoint.exists():
        return 0
    with h5py.File(checkpoint) as file:
        return len(file["loss"])


def stop_by_signal(folder, checkpoint, nodes, ranks, epochs, step):
    """The signal counts with the requests of the next step, after which all ranks stop; a single rank stops at once."""
    stopped = steps_in(checkpoint) + step + (ranks > 1)
    status, output = run(folder, checkpoint, nodes, ranks, epochs, step, signal.SIGUSR1)
    assert status == 0, output
    assert steps_in(checkpoint) == stopped
    assert f"stopped after {stopped} of {epochs * STEPS} steps" in output
    assert "all ranks stop after this step" in output
    assert "requeue: this job has no scheduler" in output


def kill(folder, checkpoint, nodes, ranks, epochs, step):
    """The last checkpoint stays: the end of the last epoch."""
    killed = steps_in(checkpoint) + step
    status, output = run(folder, checkpoint, nodes, ranks, epochs, step, signal.SIGKILL)
    assert status != 0, output
    assert steps_in(checkpoint) == (killed - 1) // STEPS * STEPS


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("ranks", "nodes", "epochs", "ends"),
    [
        pytest.param(2, 2, 2, [(stop_by_signal, 22)], marks=pytest.mark.slow),  # tests/slurm resumes a job
        pytest.param(1, 1, 4, [(stop_by_signal, 1), (kill, 40)], marks=pytest.mark.slow),
        pytest.param(3, 2, 4, [(stop_by_signal, 14), (kill, 30)], marks=pytest.mark.slow),
        pytest.param(4, 1, 4, [(kill, 29), (stop_by_signal, 13)], marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_the_whole_one(tmp_path, ranks, nodes, epochs, ends):
    whole, parts = tmp_path / "whole.h5", tmp_path / "parts.h5"
    assert run(tmp_path, whole, nodes, ranks, epochs)[0] == 0
    for end, step in ends:
        end(tmp_path, parts, nodes, ranks, epochs, step)
    status, output = run(tmp_path, parts, nodes, ranks, epochs)
    assert status == 0, output
    with h5py.File(whole) as a, h5py.File(parts) as b:
        assert dict(a.attrs) == dict(b.attrs)
        for group in ("weights", "velocity"):
            for name in a[group]:
                np.testing.assert_array_equal(a[group][name][:], b[group][name][:])
        np.testing.assert_array_equal(a["skipped"][:], b["skipped"][:])
        np.testing.assert_allclose(a["loss"][:], b["loss"][:], rtol=1e-12)


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoint = tmp_path / "one.h5"
    with h5py.File(checkpoint, "w") as file:
        file.attrs.update(seed=7, per_shard=8, rate=0.02, overflow_step=20)
    status, output = run(tmp_path, checkpoint, 1, 1, 1)
    assert status != 0
    assert "is of a run with {'seed'" in output

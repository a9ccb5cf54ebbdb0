# SPDX-License-Identifier: Apache-2.0
"""The main example, stopped by a signal to one rank, then killed, and started again each time: the same result."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EPOCHS, STEPS = 6, 14


def command(folder, checkpoint, ranks):
    launch = [sys.executable, "-m", "hpccoll", "run", "-np", str(ranks), "--timeout", "100", sys.executable]
    options = ["--folder", str(folder), "--epochs", str(EPOCHS), "--checkpoint", str(checkpoint)]
    return [*launch, str(ROOT / "examples/digits/train.py"), *options]


def environment(folder, nodes):
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "HPCCOLL_NODES": str(nodes),
        "HPCCOLL_DETERMINISTIC": "1",
        "TRAINED_IN": str(folder),
    }


def ranks_of(folder):
    """Process of each rank that has this folder in its environment."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
            words = (process / "environ").read_bytes().split(b"\0")
            names = dict(word.split(b"=", 1) for word in words if b"=" in word)
            rank = names.get(b"PMIX_RANK", names.get(b"PMI_RANK"))
            program = (process / "cmdline").read_bytes().split(b"\0")
            if rank and names.get(b"TRAINED_IN") == str(folder).encode() and program[1].endswith(b"train.py"):
                found[int(rank)] = int(process.name)
    return found


def steps_in(checkpoint):
    with h5py.File(checkpoint) as file:
        return len(file["loss"])


def run(folder, checkpoint, nodes, ranks, *, number=None, after=-1):
    """Status and output of the job; the last rank is sent `number` when the checkpoint has more than `after` steps."""
    with subprocess.Popen(
        command(folder, checkpoint, ranks), env=environment(folder, nodes), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as job:  # fmt: skip
        while number and job.poll() is None:
            if checkpoint.exists() and steps_in(checkpoint) > after:
                os.kill(ranks_of(folder)[ranks - 1], number)
                break
            time.sleep(0.01)
        output, _ = job.communicate(timeout=100)
        return job.returncode, output


def stop_by_signal(folder, checkpoint, nodes, ranks):
    status, output = run(folder, checkpoint, nodes, ranks, number=signal.SIGUSR1)
    assert status == 0, output
    stopped = steps_in(checkpoint)
    assert STEPS <= stopped < EPOCHS * STEPS
    assert f"stopped after {stopped} of {EPOCHS * STEPS} steps" in output
    assert "all ranks stop after this step" in output
    assert "requeue: this job has no scheduler" in output


def kill(folder, checkpoint, nodes, ranks):
    stopped = steps_in(checkpoint) if checkpoint.exists() else 0
    status, output = run(folder, checkpoint, nodes, ranks, number=signal.SIGKILL, after=stopped)
    assert status != 0, output
    killed = steps_in(checkpoint)
    assert killed % STEPS == 0 and stopped < killed < EPOCHS * STEPS


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("ranks", "nodes", "ends"),
    [
        (2, 2, [stop_by_signal]),
        pytest.param(1, 1, [stop_by_signal, kill], marks=pytest.mark.slow),
        pytest.param(3, 2, [stop_by_signal, kill], marks=pytest.mark.slow),
        pytest.param(4, 1, [kill, stop_by_signal], marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_the_whole_one(tmp_path, ranks, nodes, ends):
    whole, parts = tmp_path / "whole.h5", tmp_path / "parts.h5"
    assert run(tmp_path, whole, nodes, ranks)[0] == 0
    for end in ends:
        end(tmp_path, parts, nodes, ranks)
    status, output = run(tmp_path, parts, nodes, ranks)
    assert status == 0, output
    with h5py.File(whole) as a, h5py.File(parts) as b:
        assert dict(a.attrs) == dict(b.attrs)
        for group in ("weights", "velocity"):
            for name in a[group]:
                np.testing.assert_array_equal(a[group][name][:], b[group][name][:])
        np.testing.assert_array_equal(a["skipped"][:], b["skipped"][:])
        np.testing.assert_allclose(a["loss"][:], b["loss"][:], rtol=1e-12)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoint = tmp_path / "one.h5"
    with h5py.File(checkpoint, "w") as file:
        file.attrs.update(seed=7, per_shard=8, rate=0.02, overflow_step=20)
    status, output = run(tmp_path, checkpoint, 1, 1)
    assert status != 0
    assert "is of a run with {'seed'" in output

# SPDX-License-Identifier: Apache-2.0
"""The main example trains, agrees on an overflow and matches the one-process run, whatever the ranks and nodes."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

SHORT = ("--epochs", "2", "--verify")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [
        pytest.param(3, 2, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
        pytest.param(1, 1, marks=pytest.mark.slow),
        pytest.param(2, 1, marks=pytest.mark.slow),
    ],
)
def test_digits(job, tmp_path: Path, ranks: int, nodes: int) -> None:
    output = job(ranks, "examples/digits/train.py", "--folder", tmp_path, *SHORT, HPCCOLL_NODES=nodes)
    assert f"ranks {ranks}, nodes {nodes}: 28 steps" in output
    assert f"step 20: rank {ranks - 1} overflowed, all {ranks} ranks skipped it" in output
    assert "tolerated" in output
    with h5py.File(tmp_path / f"run-{ranks}-ranks.h5") as record:
        loss = record["loss"][:]
        assert len(loss) == 28 and loss[-7:].mean() < 0.2 * loss[:7].mean()
        assert record["skipped"][:].tolist() == [20]
        assert record["loss_scale"][21] == record["loss_scale"][20] / 2
        assert record.attrs["accuracy"] > 0.85
        assert {"command", "host", "written", "hpccoll", "numpy", "seed"} <= set(record.attrs)
        sent = record["communication"].attrs["net_sent_bytes"]
        assert (sent > 0) == (nodes > 1)
        assert sum(np.size(weight) for weight in record["weights"].values()) > 1_000_000


NO_GPU = """
class runtime:
    @staticmethod
    def getDeviceCount():
        return 0

class cuda:
    runtime = runtime

runtime.CUDARuntimeError = RuntimeError
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("installed", "said"), [("raise ImportError", "needs CuPy, which"), (NO_GPU, "needs a GPU")])
def test_without_a_gpu_the_device_is_refused_in_one_sentence(tmp_path: Path, installed: str, said: str) -> None:
    (tmp_path / "cupy.py").write_text(installed)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "examples/digits/train.py", "--device", "cuda"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr

# SPDX-License-Identifier: Apache-2.0
"""A process that a rank starts is no second process of that rank: init() refuses it, and the job goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, subprocess, sys
import hpccoll

hpccoll.init(verbose=0)  # at the top, as in scripts for Horovod: workers of multiprocessing import it

def work() -> None:
    raise SystemExit("the program was not imported")

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        worker = multiprocessing.get_context(method).Process(target=work)
        worker.start()
        worker.join(60)
        assert worker.exitcode == 1, worker.exitcode
        assert hpccoll.allreduce(1) == 2
    command = [sys.executable, "-P", "-c", "import hpccoll; hpccoll.init()"]
    other = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "StartError" in other.stderr, other.stderr
    inner = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "1", "--timeout=60", *command]
    inner = subprocess.run(inner, capture_output=True, text=True, timeout=90)  # a job of its own
    assert inner.returncode == 0, inner.stderr
    assert hpccoll.allreduce(1) == 2
    hpccoll.shutdown()
"""


@pytest.mark.parametrize("elastic", [[], ["--min-np=2"]], ids=["fixed", "elastic"])
@pytest.mark.timeout(200)
def test_children_of_a_rank_are_told(elastic: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    launch = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "--timeout=150", *elastic]
    environment = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_CHECK": "0"}
    done = subprocess.run(
        [*launch, sys.executable, "-P", str(program)], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stderr + done.stdout
    for rank in (0, 1):
        assert said.count(f"this process was started by rank {rank} (pid ") == 2, said  # one for each method

# SPDX-License-Identifier: Apache-2.0
"""A program that ends while a future's callback runs ends in order."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import threading, time
import torch, torch.distributed as dist
import hpccoll.torch.backend

dist.init_process_group("hpccoll")
began = threading.Event()

def callback(future):
    began.set()
    time.sleep(1)  # the program ends meanwhile
    print("called", flush=True)

dist.all_reduce(torch.ones(1), async_op=True).get_future().then(callback)
began.wait()
"""


@pytest.mark.timeout(120)
def test_a_callback_comes_to_its_end(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "hpccoll",
        "run",
        "-np",
        "2",
        "--timeout",
        "100",
        sys.executable,
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("called") == 2

# SPDX-License-Identifier: Apache-2.0
"""How a program ends: while a future's callback runs, and without a rank that is late."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import threading, time
import torch, torch.distributed as dist
import hpccoll.torch

dist.init_process_group("hpccoll")
began = threading.Event()

def callback(future):
    began.set()
    time.sleep(1)  # the program ends meanwhile
    print("called", flush=True)

dist.all_reduce(torch.ones(1), async_op=True).get_future().then(callback)
began.wait()
"""


@pytest.mark.slow
def test_a_callback_comes_to_its_end(run_job: Callable[[str], str]) -> None:
    assert run_job(PROGRAM).count("called") == 2


LATE = """
import os, pathlib, time
os.environ["HPCCOLL_STALL_WARNING"] = "0.5"
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("hpccoll", timeout=timedelta(seconds=3))
told = pathlib.Path(FILE)
if dist.get_rank() == 0:
    try:
        dist.all_reduce(torch.ones(2))
    except dist.DistBackendError as error:
        print(error, flush=True)
    told.touch()
else:
    while not told.exists():
        time.sleep(0.05)
    dist.all_reduce(torch.ones(2))
"""


def test_a_timeout_names_the_rank_that_is_late(run_job: Callable[[str], str], tmp_path: Path) -> None:
    said = run_job(LATE.replace("FILE", repr(str(tmp_path / "told"))))
    assert "allreduce of process group 0: timeout after 3 s: allreduce 'c10d 0' has waited" in said
    assert re.search(r"for 1 of 2 ranks: (not heard: )?rank 1 \(host ", said), "not heard: a busy machine"

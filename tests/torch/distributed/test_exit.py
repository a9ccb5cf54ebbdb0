# SPDX-License-Identifier: Apache-2.0
"""A program that ends while a future's callback runs ends in order."""

from collections.abc import Callable

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

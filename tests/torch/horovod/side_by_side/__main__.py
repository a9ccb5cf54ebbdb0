# SPDX-License-Identifier: Apache-2.0
"""Calls Horovod's interface for PyTorch in many ways ("questions"), and writes every rank's answers as JSON.

    hpccoll run -np 2 python tests/torch/horovod/side_by_side horovod.torch answers.json

It does the same with hpccoll.torch; test_against_horovod.py compares the answers. An answer has the facts that a
program can see: values, types, shapes, whether a result is the given tensor itself, or the classes by which an error
can be caught.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from asking import QUESTIONS, RANK, Answer, answer
from mpi4py import MPI

PARTS = ("beginning", "collectives", "mistakes", "training", "ending")
"""The modules with questions, in the order of the job."""


def answers() -> Iterator[tuple[str, Answer]]:
    for title, question in QUESTIONS.items():
        if "--verbose" in sys.argv:
            print(RANK, title, file=sys.stderr, flush=True)
        yield title, answer(question)


for part in PARTS:
    importlib.import_module(part)
torch.set_num_threads(1)
os.environ.update(HOROVOD_TIMELINE="DYNAMIC", HOROVOD_DYNAMIC_PROCESS_SETS="1")  # Horovod has both off
everybody = MPI.COMM_WORLD.gather(dict(answers()))
if everybody:
    Path(sys.argv[2]).write_text(json.dumps({title: [one[title] for one in everybody] for title in QUESTIONS}))

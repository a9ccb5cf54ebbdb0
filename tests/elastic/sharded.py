# SPDX-License-Identifier: Apache-2.0
"""An elastic program: each rank has a block of a vector, and copies of its neighbours' blocks.

In step STRIKE rank 2 of 3 is killed when rank 0 has made the step's commit and rank 1 cannot. FOLDER is the argument;
rank 0 writes the vector at the end.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import hpccoll
from hpccoll import elastic

FOLDER = Path(sys.argv[1])
LENGTH, STEPS, STRIKE, MODULUS = 101, 40, 12, 1_000_003


def part(rank: int, size: int) -> slice:
    return slice(rank * LENGTH // size, (rank + 1) * LENGTH // size)


class Field(elastic.ArrayState):
    def rollback(self) -> None:
        (FOLDER / f"rolled-back-{hpccoll.rank()}").touch()
        super().rollback()

    def reshard(self, before: list[int], size: int) -> None:
        mine, whole = before[hpccoll.rank()], np.full(LENGTH, -1)
        blocks = {mine: self.block, (mine - 1) % size: self.left, (mine + 1) % size: self.right} if mine >= 0 else {}
        for found in hpccoll.allgather_object(blocks):
            for rank, block in found.items():
                known = whole[part(rank, size)]
                assert (known == -1).all() or (known == block).all(), "copies and blocks are those of one commit"
                whole[part(rank, size)] = block
        assert (whole >= 0).all(), f"two neighbours were lost: {before}"
        deal(self, whole)


def deal(state: elastic.ArrayState, whole: np.ndarray) -> None:
    rank, size = hpccoll.rank(), hpccoll.size()
    state.block, state.left, state.right = (
        whole[part(other % size, size)].copy() for other in (rank, rank - 1, rank + 1)
    )


def exchange(state: elastic.ArrayState) -> None:
    rank, size = hpccoll.rank(), hpccoll.size()
    left, right = (rank - 1) % size, (rank + 1) % size
    hpccoll.sendrecv(state.block, right, state.left, left)
    if state.step == STRIKE and size == 3 and rank == 2:
        while not (FOLDER / "committed").exists():
            time.sleep(0.01)
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    hpccoll.sendrecv(state.block, left, state.right, right)


@elastic.run
def train(state: elastic.ArrayState) -> None:
    if not state.step:
        deal(state, np.arange(LENGTH))
    while state.step < STEPS:
        if state.step == 25:
            while hpccoll.size() < 3:
                hpccoll.barrier()
                state.check_host_updates()
                time.sleep(0.01)
        total = int(hpccoll.allreduce(int(state.block.sum()), name="total"))
        state.block[:] = (state.block * 3 + total + np.arange(LENGTH)[part(hpccoll.rank(), hpccoll.size())]) % MODULUS
        exchange(state)
        state.step += 1
        state.commit()
        if state.step == STRIKE + 1 and hpccoll.rank() == 0:
            (FOLDER / "committed").touch()
        time.sleep(0.003)


empty = np.zeros(0, np.int64)
state = Field(block=empty, left=empty.copy(), right=empty.copy(), step=0, sharded=("block", "left", "right"))
train(state)
whole = np.concatenate(hpccoll.allgather_object(state.block))
if hpccoll.rank() == 0:
    np.save(FOLDER / "whole.npy", whole)

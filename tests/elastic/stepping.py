# SPDX-License-Identifier: Apache-2.0
"""An elastic program that follows a plan; rank 0 writes the commits.

STEPPING holds a folder: `plan.json` is a list of [step, rank, place, deed, argument], each done once in the job, by the
rank that it names (-1: each). Places: "before" and "after" the operation of a step, "sync" (in the reset before it),
"two" (before the operation of a step of two ranks).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hpccoll
from hpccoll import elastic
from hpccoll.detect.descendants import state_and_parent
from hpccoll.rendezvous import coordinator

FOLDER = Path(os.environ["STEPPING"])
PLAN = json.loads((FOLDER / "plan.json").read_text())
SAMPLES, EPOCHS, BATCH, SIZE = 103, 3, 4, 50
PATIENCE = 60
"""Seconds that ranks may take to join or leave."""


def gradient(indices: list[int], weights: np.ndarray) -> np.ndarray:
    total = np.zeros_like(weights)
    for index in indices:
        total += np.random.default_rng(index).standard_normal(SIZE) - weights / 7
    return total


def is_first(number: int) -> bool:
    """Return whether this deed was not done before in the job."""
    try:
        os.close(os.open(FOLDER / f"done-{number}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def act(place: str, state: elastic.State) -> None:
    for number, (step, rank, where, deed, argument) in enumerate(PLAN):
        if where != place or step > len(state.log) or rank not in (-1, hpccoll.rank()):
            continue
        if deed in ("reach", "fall"):
            await_size(deed, argument, FOLDER / f"reached-{number}", state)
        elif deed == "always raise":
            raise ValueError("as the plan says")
        elif is_first(number):
            do(deed, argument)


def note_world() -> None:
    """Record the World, for the test that there is one per generation."""
    job, world = coordinator.of_process(os.environ), hpccoll.world()
    line = json.dumps([job.generation if job else 0, world.base.nonce, world.rank, world.size])
    with (FOLDER / "worlds").open("a") as file:
        file.write(line + "\n")


def await_size(deed: str, size: int, reached: Path, state: elastic.State) -> None:
    """Wait until there are as many ranks, once in the job: a later change may undo it."""
    limit = time.monotonic() + PATIENCE
    while (hpccoll.size() > size if deed == "fall" else hpccoll.size() < size) and not reached.exists():
        hpccoll.barrier(name="await")
        state.check_host_updates()
        time.sleep(0.01)
        if time.monotonic() > limit:
            raise TimeoutError(f"{deed} {size}: there are {hpccoll.size()} ranks after {PATIENCE} s")
    reached.touch()


def do(deed: str, argument: object) -> None:
    if deed == "hosts":
        (FOLDER / "hosts.new").write_text(str(argument))
        (FOLDER / "hosts.new").replace(FOLDER / "hosts")
    elif deed == "mark":
        (FOLDER / f"mark{argument or ''}").touch()
    elif deed == "raise":
        raise ValueError("as the plan says")
    elif deed == "sys.exit":
        sys.exit(int(str(argument)))
    elif deed == "pause":  # no other rank would miss a single rank, so it must wake up
        subprocess.Popen(["sh", "-c", f"sleep 6; kill -CONT {os.getpid()}"], start_new_session=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif deed == "exit":
        os._exit(int(str(argument)))
    elif deed == "compute":
        time.sleep(int(str(argument)))
    elif deed == "strike agent":
        os.kill(os.getppid(), getattr(signal, str(argument)))
        time.sleep(PATIENCE)
    elif deed == "kill launcher":
        launcher = state_and_parent(os.getppid())[1]
        subprocess.Popen(["sh", "-c", f"sleep {argument}; kill -9 {launcher}"], start_new_session=True)
        if not argument:
            await_end_of_connection()
    else:
        (FOLDER / f"{deed}-{os.getpid()}").touch()
        os.kill(os.getpid(), getattr(signal, deed))


def await_end_of_connection() -> None:
    """Wait until this rank knows that its launcher is gone."""
    job, limit = coordinator.of_process(os.environ), time.monotonic() + PATIENCE
    while not job._cut and time.monotonic() < limit:
        time.sleep(0.001)


def sync_slowly(file: int, sync: Callable[[int], None] = os.fsync) -> None:
    sync(file)
    time.sleep(0.2)


def begin_early() -> None:
    """Call init() as Horovod's programs do. A new rank then prepares until the others have gone on without it."""
    hpccoll.init()
    if hpccoll.size() == hpccoll.world().size:
        return
    total = hpccoll.allreduce(np.ones(1), name="before run()")
    (FOLDER / "early").write_text(json.dumps([hpccoll.rank(), hpccoll.size(), hpccoll.local_rank(), *total]))
    limit = time.monotonic() + PATIENCE
    while not (FOLDER / "mark").exists():
        time.sleep(0.01)
        if time.monotonic() > limit:
            raise TimeoutError("the others do not go on")


if "early" in sys.argv:
    begin_early()
if "slow-disk" in sys.argv:
    os.fsync = sync_slowly
sampler = elastic.ElasticSampler(range(SAMPLES), seed=3)
path = str(FOLDER / "commit") if "durable" in sys.argv else ""
state = elastic.ArrayState(weights=np.zeros(SIZE), sampler=sampler, epoch=0, log=[], path=path)
state.register_reset_callbacks([lambda: act("sync", state)])


@elastic.run
def train(state: elastic.State) -> None:
    note_world()
    while state.epoch < EPOCHS:
        sampler.set_epoch(state.epoch)
        mine, before = list(sampler), sampler.processed_num
        for step in range(sampler.steps(BATCH)):
            batch = mine[step * BATCH : (step + 1) * BATCH]
            act("before", state)
            if hpccoll.size() == 2:
                act("two", state)
            total = hpccoll.allreduce(gradient(batch, state.weights), name="gradient")
            took = hpccoll.allgather_object(batch, name="took")
            act("after", state)
            state.weights -= 0.01 * total
            sampler.record_batch(step, BATCH)
            assert sampler.processed_num >= before
            state.log = [*state.log, (state.epoch, took)]
            state.commit()
            time.sleep(0.003)
        state.epoch += 1


train(state)
weights = hpccoll.allgather_object(state.weights.tobytes())
assert all(one == weights[0] for one in weights), "ranks have different weights"
if hpccoll.rank() == 0:
    result = {"log": state.log, "weights": weights[0].hex(), "size": hpccoll.size()}
    (FOLDER / "result.json").write_text(json.dumps(result))

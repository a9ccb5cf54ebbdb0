# SPDX-License-Identifier: Apache-2.0
"""Injects a fault into `hpccoll.io.save` at each of its system calls: one process forks the ranks of each table row.

It runs with blow.c preloaded, and prints the outcome of each row as JSON; test_save.py starts it. A row is a call
(number `at` of rank `caller`), a kind of fault and the rank that it hits:

    FAIL     the call fails with EIO, and does nothing
    BEFORE   a signal goes to the victim before the call, AFTER: after it. SIGKILL, or SIGTERM as SystemExit

Then all ranks must end, and 1 and 4 ranks must read exactly the old or the new state.
"""

import argparse
import atexit
import contextlib
import ctypes
import json
import mmap
import os
import pickle
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py  # noqa: F401 - once, not in each fork
import numpy as np
from file_store import FileStore

import hpccoll
from hpccoll import io, testing
from hpccoll.rendezvous import StoreRendezvous

NONE, FAIL, BEFORE, AFTER = range(4)
EIO, LIMIT = 5, 30.0
SAID = ("?", "saved", "refused", "in doubt", "left", "lost others")
"""The outcomes of `save` on a rank."""
MOST = 8
"""Ranks in the page that all processes share: their process ids, numbers of calls, and outcomes."""
library = ctypes.CDLL(None)
library.blow_name.restype = ctypes.c_char_p
page = mmap.mmap(-1, mmap.PAGESIZE)
start_of_page = ctypes.addressof(ctypes.c_char.from_buffer(page))


class Row(NamedTuple):
    """One fault."""

    caller: int = 0
    at: int = 0
    kind: int = NONE
    signal: int = 0
    victim: int = 0


def arrays(rank: int, step: int) -> dict[str, Any]:
    """Return the arrays of a rank: rows that differ per rank, and this rank's part of a field."""
    rows = np.full((2 + rank, 3), step, np.int64)
    field = io.Part(np.full((1, 4), 10.0 * step + rank), (rank, 0), (MOST, 4))
    return {"rows": rows, "field": field}


def state(world: hpccoll.World, path: Path) -> Any:
    """Return the state that the ranks read: the step and all values, or that there is no file."""
    try:
        step = io.attributes(path, world=world)["step"]
        rows = io.load(path, "rows", world=world)
        field = io.load(path, "field", offset=(0, 0), shape=(MOST, 4), world=world)
    except io.CheckpointError as error:
        return str(error) if "No such file" not in str(error) else None
    everybody = world.allgather(rows)
    return step, everybody.tolist(), field.tolist()


def expected(ranks: int, step: int) -> Any:
    rows = [[step] * 3 for rank in range(ranks) for _ in range(2 + rank)]
    field = [[10.0 * step + rank if rank < ranks else 0.0] * 4 for rank in range(MOST)]
    return step, rows, field


def found(worlds: list[list[hpccoll.World]], path: Path) -> tuple[list[Any], tuple[Any, int]]:
    """Return the state that the ranks of all Worlds read, and the state after one more save in a copy of the folder."""
    first = [one for ranks in worlds for one in testing.run(ranks, lambda world: state(world, path))]
    again = Path(f"{path.parent}.copied", path.name)
    shutil.copytree(path.parent, again.parent)
    testing.run(worlds[0], lambda world: io.save(again, arrays(0, 9), attrs={"step": 9}, world=world))
    after = testing.run(worlds[0], lambda world: state(world, again))[0]
    files = len(list(again.parent.iterdir()))
    shutil.rmtree(again.parent)
    return first, (after, files)


# ---- processes ------------------------------------------------------------------------------------------


class Reader:
    """A process that reads checkpoints with Worlds of 1 and of 4 ranks, which live as long as it does."""

    def __init__(self) -> None:
        (ask, self._ask), (self._answer, answer) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._ask)
            self._serve(os.fdopen(ask, "rb"), os.fdopen(answer, "wb"))
        os.close(ask)
        os.close(answer)
        self._asks, self._answers = os.fdopen(self._ask, "wb"), os.fdopen(self._answer, "rb")

    @staticmethod
    def _serve(asks: Any, answers: Any) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what is left is said each time
        worlds = [testing.threads(n) for n in (1, 4)]
        with contextlib.suppress(EOFError):
            while True:
                pickle.dump(found(worlds, pickle.load(asks)), answers)
                answers.flush()
        os._exit(0)

    def read(self, path: Path) -> tuple[list[Any], tuple[Any, int]]:
        """Return the state that all ranks read, the state after one more save, and its number of files."""
        pickle.dump(path, self._asks)
        self._asks.flush()
        return pickle.load(self._answers)


def rank_of(rank: int, ranks: int, nodes: str, place: str, path: Path, row: Row) -> None:
    """Run a rank in its own process: make a World, and save under the fault."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    said = "?"
    try:
        rendezvous = StoreRendezvous(rank, ranks, FileStore(place), timeout=LIMIT)
        world = hpccoll.World(rendezvous=rendezvous, nodes=nodes, verbose=0, check=False, trace_dir=place)
        kind = row.kind if rank == row.caller else NONE
        victim = ctypes.c_void_p(start_of_page + 4 * row.victim)
        library.blow_arm(os.fsencode(path.parent), row.at, kind, EIO, row.signal, victim)
        try:
            io.save(path, arrays(rank, 2), attrs={"step": 2}, world=world)
            said = "saved"
        finally:
            count = library.blow_count()
            library.blow_arm(b"", 0, NONE, 0, 0, None)
            struct.pack_into("i", page, 4 * (MOST + rank), count)
        world.shutdown(wait=False)
    except SystemExit:
        said = "left"
    except io.CheckpointError as error:
        said = "in doubt" if "may have its place" in str(error) else "refused"
    except (hpccoll.RecoverableError, hpccoll.ShutDownError):
        said = "lost others"
    except Exception:  # noqa: BLE001 - it must not reach the code of the parent
        traceback.print_exc()
    with contextlib.suppress(SystemExit):
        atexit._run_exitfuncs()
    os._exit(SAID.index(said))


def run(ranks: int, nodes: str, path: Path, row: Row) -> list[str]:
    """Run the ranks of a row until all have ended; return the outcome of each."""
    place = tempfile.mkdtemp(dir="/dev/shm", prefix="blows-")
    pids = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            rank_of(rank, ranks, nodes, place, path, row)
        pids[pid] = rank
        struct.pack_into("i", page, 4 * rank, pid)
    said, limit = ["?"] * ranks, time.monotonic() + LIMIT
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in pids:
            rank = pids.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            said[rank] = SAID[code] if code >= 0 else f"signal {-code}"
        elif time.monotonic() > limit:
            for left in pids:
                os.kill(left, signal.SIGKILL)
            said = ["hangs"] * ranks
            limit = time.monotonic() + LIMIT
        else:
            time.sleep(0.0005)
    shutil.rmtree(place)
    return said


# ---- the table ------------------------------------------------------------------------------------------


def rows(counts: list[int]) -> Iterator[Row]:
    """Yield all faults: each call of each rank, each kind, each rank as the victim."""
    for caller, count in enumerate(counts):
        for at in range(1, count + 1):
            yield Row(caller, at, FAIL)
            for victim in range(len(counts)):
                for number in (signal.SIGKILL, signal.SIGTERM):
                    yield Row(caller, at, BEFORE, number, victim)
                yield Row(caller, at, AFTER, signal.SIGKILL, victim)


def judge(ranks: int, target: str, said: list[str], found: list[Any], after: Any, names: tuple[Any, Any]) -> str:
    """Return what is wrong with the outcome of a row; "" if it is correct."""
    old, new = expected(ranks, 1) if target == "existing" else None, expected(ranks, 2)
    if set(said) - {*SAID[1:], f"signal {signal.SIGKILL}"}:
        return "a rank did not come to an end of its own"
    if any(one != found[0] for one in found) or found[0] not in (old, new):
        return f"read {found}"
    if "saved" in said and found[0] != new:
        return "saved, and the old state is read"
    if "refused" in said and (found[0] != old or (set(said) == {"refused"} and names[0] != names[1])):
        return f"refused, and {names[1]} lie there after {names[0]}"
    if after != (expected(1, 9), 2):
        return f"the next save leaves {after}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", default="2")
    parser.add_argument("--target", choices=("new", "existing"), default="existing")
    parser.add_argument("--stride", type=int, default=1, help="take every so many rows")
    parser.add_argument("--first", type=int, default=0, help="and begin with this one")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="blows-"))
    reader = Reader()
    path, baseline = folder / "there" / "state.h5", folder / "baseline"
    for name in (path.parent, baseline):
        name.mkdir()
    if arguments.target == "existing":
        write_old(arguments.ranks, baseline / path.name)

    def strike(row: Row) -> tuple[list[str], tuple[list[str], list[str]]]:
        shutil.rmtree(path.parent)
        shutil.copytree(baseline, path.parent)
        before = sorted(file.name for file in path.parent.iterdir())
        said = run(arguments.ranks, arguments.nodes, path, row)
        return said, (before, sorted(file.name for file in path.parent.iterdir()))

    said, _ = strike(Row())
    counts = list(struct.unpack_from(f"{arguments.ranks}i", page, 4 * MOST))
    assert said == ["saved"] * arguments.ranks, said
    print(json.dumps({"counts": counts}))
    for row in list(rows(counts))[arguments.first :: arguments.stride]:
        said, names = strike(row)
        found, after = reader.read(path)
        wrong = judge(arguments.ranks, arguments.target, said, found, after, names)
        print(json.dumps({"row": row, "said": said, "wrong": wrong}), flush=True)
    shutil.rmtree(folder)


def write_old(ranks: int, path: Path) -> None:
    """Write the old state with threads of another process, because this process has to fork."""
    pid = os.fork()
    if pid == 0:
        worlds = testing.threads(ranks)
        testing.run(worlds, lambda w: io.save(path, arrays(w.rank, 1), attrs={"step": 1}, world=w))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    main()

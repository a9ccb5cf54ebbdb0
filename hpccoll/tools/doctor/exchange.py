# SPDX-License-Identifier: Apache-2.0
"""Exchanges of small values between ranks: through MPI, or without it in a shared folder or through the hub's pipes.

They do not use hpccoll's rendezvous (hpccoll/rendezvous), because they must continue if a rank is missing.
"""

import contextlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hpccoll import durable

POLL = 0.02


class ExchangeError(Exception):
    """The ranks could not exchange values; the text says which rank is missing."""


class Exchange(Protocol):
    """Ranks that exchange values that JSON can hold."""

    rank: int
    size: int

    def allgather(self, value: Any) -> list[Any]:
        """Exchange values; all ranks call it together.

        :returns: the values in the order of the ranks; None for a missing rank
        """


class SingleProcess:
    """A process without an exchange, in a job of one rank or of several."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def allgather(self, value: Any) -> list[Any]:
        """See Exchange."""
        return [value]


class MpiExchange:
    """The ranks of an mpi4py communicator."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def allgather(self, value: Any) -> list[Any]:
        """See Exchange. A waiting rank sleeps, because a spinning core would disturb the other ranks' measurements."""
        ready = self.comm.Ibarrier()
        while not ready.Test():
            time.sleep(0.001)
        values: list[Any] = self.comm.allgather(value)
        return values


class FolderExchange:
    """Ranks that share a folder: rank 0 collects the files that the others write there, and writes the list.

    Each file gets its name by renaming, so that no rank reads an unfinished file. If a rank's file is missing after
    `patience` seconds, the value of this rank is None from then on. A rank that finds no list after twice that time
    raises ExchangeError. The folder must belong to the user: anybody who can write into it could pose as a rank.
    """

    def __init__(self, folder: Path, rank: int, size: int, patience: float) -> None:
        self.folder, self.rank, self.size, self.patience = folder, rank, size, patience
        self.step = 0
        self.present = set(range(size))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ExchangeError(f"{folder} is another user's, or others may write into it: name one with --meet")

    def allgather(self, value: Any) -> list[Any]:
        """See Exchange.

        :raises ExchangeError: rank 0 wrote no list in time, or this rank is not on it
        """
        self.step += 1
        self._write(f"{self.step}-{self.rank}", value)
        if self.rank == 0:
            self._wait(lambda: all(self._path(rank).exists() for rank in self.present), self.patience)
            self.present = {rank for rank in self.present if self._path(rank).exists()}
            values = {str(rank): json.loads(self._path(rank).read_text()) for rank in self.present}
            self._write(f"{self.step}-all", values)
            return [values.get(str(rank)) for rank in range(self.size)]
        answer = self.folder / f"{self.step}-all"
        if not self._wait(answer.exists, 2 * self.patience + 5):
            raise ExchangeError(f"no word from rank 0 in {self.folder}: is it a folder that all hosts share?")
        values = json.loads(answer.read_text())
        if str(self.rank) not in values:
            raise ExchangeError(f"rank {self.rank} came too late to the exchange in {self.folder}")
        return [values.get(str(rank)) for rank in range(self.size)]

    def close(self) -> None:
        """Remove the folder when all ranks have read its last list; all ranks call it together."""
        with contextlib.suppress(ExchangeError):
            self.allgather(None)
        if self.rank == 0:
            time.sleep(10 * POLL)
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self._wait(lambda: not self.folder.exists(), 5)

    def leave(self) -> None:
        """Remove the files of this rank after a failed exchange, and the folder if it is empty then."""
        for step in range(1, self.step + 1):
            (self.folder / f"{step}-{self.rank}").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _path(self, rank: int) -> Path:
        return self.folder / f"{self.step}-{rank}"

    def _write(self, name: str, value: Any) -> None:
        durable.write_text(self.folder / name, json.dumps(value), lasting=False)

    def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(FileNotFoundError):
                os.scandir(self.folder).close()  # makes a network file system refresh
            time.sleep(POLL)
        return True


class HubExchange:
    """A process that the hub started over ssh: it sends a line of JSON to the hub, and gets the values of all ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def allgather(self, value: Any) -> list[Any]:
        """See Exchange.

        :raises ExchangeError: the hub has ended
        """
        print(json.dumps({"value": value}), flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise ExchangeError("the hub is gone")
        values: list[Any] = json.loads(answer)
        return values

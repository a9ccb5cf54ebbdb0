# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of ranks that share a key-value store, such as torchrun gives them: a World without MPI."""

from __future__ import annotations

import pickle
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from hpccoll import errors
from hpccoll.text import some_ranks

__all__ = ["Store", "StoreRendezvous"]

T = TypeVar("T")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
REPORT_EVERY = 10.0
GRACE = 5.0
"""Seconds that the other ranks wait longer than rank 0, which knows who is missing and says so."""


class Store(Protocol):
    """What is needed of a store: four methods of torch.distributed.Store."""

    def set(self, key: str, value: bytes) -> None:
        """Set the value of a key that all ranks see."""

    def get(self, key: str) -> bytes:
        """Give the value of a key that is there."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Return when all keys are there; raise after `timeout`."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""


class StoreRendezvous:
    """See Rendezvous: the ranks share a store."""

    one_process = False

    def __init__(
        self,
        rank: int,
        size: int,
        store: Store,
        *,
        prefix: str = "hpccoll",
        host: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        """Exchange a first value with all ranks, within `timeout` seconds.

        :param rank: the number of this process, from 0
        :param size: the number of all processes
        :param store: has the methods `set`, `get`, `wait` and `check` of `torch.distributed.Store`
        :param prefix: the beginning of all keys; a prefix serves for one rendezvous
        :param host: equal on ranks that can share memory; default: the host's name and the number of its boot
        :param timeout: seconds for each exchange of the rendezvous
        :raises StartError: ranks are missing, or the store failed; on all ranks that are there
        """
        if not 0 <= rank < size:
            raise errors.InvalidArgumentError(f"rank {rank} of {size} ranks: ranks count from 0")
        self.rank, self.size = rank, size
        self.store, self.prefix, self.timeout = store, prefix, timeout
        self.host = host or f"{socket.gethostname()} (boot {BOOT_ID.read_text().strip()})"
        self.exchanges = 0
        self.allgather(None)

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous. Rank 0 reads what each rank wrote, and writes it all for the others to read.

        It stays until they have: if it ends then, the store may end with it.
        """
        at, self.exchanges = f"{self.prefix}/{self.exchanges}", self.exchanges + 1
        try:
            self.store.set(f"{at}/{self.rank}", pickle.dumps(value))
            verdict, values = self._collect(at) if self.rank == 0 else self._read(at)
        except Exception as error:
            raise errors.StartError(
                f"the World was not made: the store failed: {type(error).__name__}: {error}"
            ) from error
        if verdict:
            raise errors.StartError(f"the World was not made: {verdict}")
        return [pickle.loads(data) for data in values]

    def _collect(self, at: str) -> tuple[str, list[bytes]]:
        """On rank 0: what is wrong, or what each rank wrote."""
        verdict, values, there = "", [], set(range(self.size))
        keys = {r: f"{at}/{r}" for r in there}
        if not self._await(keys) and (missing := self._missing(keys)):
            there -= missing
            who = some_ranks(missing)
            verdict = f"no word from {who} within {self.timeout:g} s (HPCCOLL_START_TIMEOUT)"
        else:
            values = [bytes(self.store.get(key)) for key in keys.values()]
        self.store.set(f"{at}/all", pickle.dumps((verdict, values)))
        self._await({r: f"{at}/{r}/read" for r in there - {0}})
        return verdict, values

    def _read(self, at: str) -> tuple[str, list[bytes]]:
        """On the other ranks: the same."""
        limit = self.timeout + GRACE
        if not self._await({0: f"{at}/all"}, limit, lambda: self._speaks_for_rank_0(at)):
            return f"no word from rank 0 within {limit:g} s", []
        outcome: tuple[str, list[bytes]] = pickle.loads(self.store.get(f"{at}/all"))
        self.store.set(f"{at}/{self.rank}/read", b"")
        return outcome

    def _await(
        self, keys: dict[int, str], timeout: float | None = None, reports: Callable[[], bool] = lambda: True
    ) -> bool:
        """Whether the ranks' keys are all there in time; a rank that `reports` says every ten seconds whose are not."""
        if not keys:
            return True
        limit = time.monotonic() + (timeout or self.timeout)
        while (left := limit - time.monotonic()) > 0:
            try:
                self.store.wait(list(keys.values()), timedelta(seconds=min(left, REPORT_EVERY)))
            except Exception:  # noqa: BLE001 - of its own class in each store; a broken one fails in check(), too
                if self.store.check(list(keys.values())):
                    return True
                if time.monotonic() < limit:
                    if reports():
                        self._say_missing(keys)
                    time.sleep(0.001)  # a store whose wait() does not wait
            else:
                return True
        return False

    def _speaks_for_rank_0(self, at: str) -> bool:
        """Whether it is this rank that says that rank 0 has not come."""
        return self.rank == 1 and not self.store.check([f"{at}/0"])

    def _missing(self, keys: dict[int, str]) -> set[int]:
        return {rank for rank, key in keys.items() if not self.store.check([key])}

    def _say_missing(self, keys: dict[int, str]) -> None:
        missing = some_ranks(self._missing(keys))
        print(f"hpccoll: start: waiting for {missing}", file=sys.stderr, flush=True)

    def machine(self) -> str:
        """See Rendezvous."""
        return self.host

    def give_up(self) -> None:
        """See Rendezvous: the other ranks see that this process is gone, and nothing waits for it."""

    def free(self) -> None:
        """See Rendezvous: the store is its maker's."""

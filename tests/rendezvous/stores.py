# SPDX-License-Identifier: Apache-2.0
"""A store in the memory of this process, whose ranks are threads; a test may change its values."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import hpccoll
from hpccoll.rendezvous import StoreRendezvous

Change = Callable[[str, bytes], bytes]
"""Takes a key and a rank's value; returns the value that the others will read."""


class MemoryStore:
    def __init__(self, change: Change = lambda _, value: value) -> None:
        self.change = change
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = self.change(key, value)
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        limit = time.monotonic() + timeout.total_seconds()
        with self.changed:
            while not self.check(keys):
                if not self.changed.wait(limit - time.monotonic()) and not self.check(keys):
                    raise TimeoutError(keys)


def exchange(
    store: MemoryStore, values: list[Any], secrets: list[str] | None = None, timeout: float = 0.3
) -> list[list[Any] | str]:
    """Exchange the values with one thread per value; return the result of each, or the text of its error."""

    def one(rank: int) -> list[Any] | str:
        try:
            found = StoreRendezvous(
                rank, len(values), store, timeout=timeout, secret=secrets[rank] if secrets else "", host="here"
            )
            return found.allgather(values[rank])
        except hpccoll.StartError as error:
            return str(error)

    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(one, range(len(values))))

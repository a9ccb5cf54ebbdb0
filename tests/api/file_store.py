# SPDX-License-Identifier: Apache-2.0
"""A key-value store of files in a folder, with the methods of torch.distributed.Store that are needed."""

import time
from datetime import timedelta
from pathlib import Path


class FileStore:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        return self.folder / key.replace("/", "%")

    def set(self, key: str, value: bytes) -> None:
        fresh = self.path(f"{key}.new")
        fresh.write_bytes(value)
        fresh.replace(self.path(key))

    def get(self, key: str) -> bytes:
        return self.path(key).read_bytes()

    def check(self, keys: list[str]) -> bool:
        return all(self.path(key).exists() for key in keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        limit = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            if time.monotonic() > limit:
                raise TimeoutError(keys)
            time.sleep(0.001)

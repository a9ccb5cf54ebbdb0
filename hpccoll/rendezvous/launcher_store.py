# SPDX-License-Identifier: Apache-2.0
"""The store that `hpccoll run` keeps for a job without MPI, as a rank sees it."""

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hpccoll import channel, errors
from hpccoll.launch_protocol import LONGEST, STORE
from hpccoll.rendezvous.process_connection import ProcessConnection

__all__ = ["LauncherStore", "of_process"]


class LauncherStore:
    """See hpccoll.rendezvous.Store: one connection, guarded by a lock for threads."""

    def __init__(self, text: str) -> None:
        """Connect.

        :param text: the variable STORE
        :raises StartError: the launcher cannot be reached
        """
        self._turn = threading.Lock()
        try:
            secret, addresses = channel.parse(text)
            self._channel = channel.connect(addresses, secret)
        except (OSError, ValueError, channel.ChannelError) as error:
            raise errors.StartError(f"the store of `hpccoll run` cannot be reached: {error}") from None

    def set(self, key: str, value: bytes) -> None:
        """See Store."""
        self._ask({"set": key, "value": value.decode("latin-1")})

    def get(self, key: str) -> bytes:
        """See Store."""
        value = self._ask({"get": key})
        if value is None:
            raise KeyError(key)
        return str(value).encode("latin-1")

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """See Store."""
        if not self._ask({"check": keys, "seconds": timeout.total_seconds()}):
            raise TimeoutError(f"not all of {keys} are there")

    def check(self, keys: list[str]) -> bool:
        """See Store."""
        return bool(self._ask({"check": keys, "seconds": 0}))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        with self._turn:
            self._channel.send(json.dumps(question).encode())
            return json.loads(self._channel.receive(LONGEST))


of_process = ProcessConnection(STORE, lambda env: LauncherStore(env[STORE]))
"""`of_process(env)`: the connection of this process; None if the launcher keeps no store."""

# SPDX-License-Identifier: Apache-2.0
"""A process that `hpccoll run` started keeps a connection to it, so that the launcher knows when the rank has ended.

The kernel closes the connection when the process ends, however that happens. Python must not close it earlier: after
Python's own end come MPI_Finalize and the ends of other libraries, which may take seconds. The variable
`_HPCCOLL_LAUNCHER` holds the secret of the job and the launcher's addresses; a process without it tells nobody.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
from collections.abc import Mapping

from hpccoll import channel, detect
from hpccoll.channel import parse, text_of

__all__ = ["LAUNCHER", "parse", "text_of", "world_begins", "world_ended"]

LAUNCHER = "_HPCCOLL_LAUNCHER"
LAST_WORD = 1.0
"""Seconds that the end of a World waits for a connection that is still being made."""


class _Connection:
    """The connection of the process to its launcher, which a thread makes: init() does not wait for it."""

    def __init__(self, text: str, rank: int) -> None:
        self.worlds = 1
        self._channel: channel.Channel | None = None
        self._kept = -1  # a descriptor that Python does not close when it ends, as it does its sockets
        self._report = {"rank": rank, "host": platform.node(), "pid": os.getpid()}
        self._thread = threading.Thread(target=self._open, args=(text,), name="hpccoll launcher", daemon=True)
        self._thread.start()

    def _open(self, text: str) -> None:
        secret, addresses = parse(text)
        with contextlib.suppress(OSError, channel.ChannelError):  # the launcher counts the ranks that it knows
            opened = channel.connect(addresses, secret)
            opened.send(json.dumps(self._report).encode())
            self._kept = os.dup(opened.connection.fileno())
            self._channel = opened

    def say_worlds(self) -> None:
        self._thread.join(LAST_WORD)
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(json.dumps({"worlds": self.worlds}).encode())

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            os.close(self._kept)


_connection: _Connection | None = None


def world_begins(env: Mapping[str, str]) -> None:
    """Tell the launcher that this process has a World (one more).

    :param env: the environment of the process
    """
    global _connection
    if _connection is not None:
        _connection.worlds += 1
        _connection.say_worlds()
    elif env.get(LAUNCHER) and (place := detect.place(env)) and place.rank is not None:
        _connection = _Connection(env[LAUNCHER], place.rank)


def world_ended() -> None:
    """Tell the launcher that a World of this process has ended well: without one, the end of the process is no loss."""
    if _connection is not None:
        _connection.worlds -= 1
        _connection.say_worlds()


def _after_fork() -> None:
    """Close the child's copy: the connection would outlive the rank."""
    global _connection
    if _connection is not None:
        _connection.close()
    _connection = None


os.register_at_fork(after_in_child=_after_fork)

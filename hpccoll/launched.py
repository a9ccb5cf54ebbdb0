# SPDX-License-Identifier: Apache-2.0
"""The connection of a rank to `hpccoll run`, by which the launcher detects the end of the rank.

The launcher notifies the other ranks, whose Worlds then have lost that rank.

The kernel closes the connection when the process ends, however that happens. Python must not close it earlier:
MPI_Finalize and the finalizers of other libraries run after Python's end, and may take seconds. The variable
`_HPCCOLL_LAUNCHER` holds the secret of the job and the launcher's addresses; a process without it makes no connection.
"""

import contextlib
import json
import os
import platform
import threading
from collections.abc import Callable, Mapping

from hpccoll import channel, detect
from hpccoll.launch_protocol import LAUNCHER

__all__ = ["world_begins", "world_ended"]

Ended = Callable[[str, int], None]
"""Called with the host and the process id of a rank that has ended without shutdown()."""
LAST_WORD = 1.0
"""Seconds that the end of a World waits for an unfinished connection."""


class _Connection:
    """The connection of the process to its launcher, which a thread makes: init() does not wait for it."""

    def __init__(self, text: str, rank: int) -> None:
        self.worlds: list[Ended] = []
        self._channel: channel.Channel | None = None
        self._kept = -1  # a duplicate descriptor: Python closes its sockets at its end, but not this
        self._report = {"rank": rank, "host": platform.node(), "pid": os.getpid()}
        self._is_made = threading.Event()
        threading.Thread(target=self._open, args=(text,), name="hpccoll launcher", daemon=True).start()

    def _open(self, text: str) -> None:
        secret, addresses = channel.parse(text)
        with contextlib.suppress(OSError, channel.ChannelError):  # the launcher counts only ranks with a connection
            try:
                opened = channel.connect(addresses, secret)
                self._kept = os.dup(opened.connection.fileno())  # before the report: no descriptor may be left
                opened.send(json.dumps(self._report).encode())
                opened.connection.settimeout(None)
                self._channel = opened
            finally:
                self._is_made.set()
            while True:
                ended = json.loads(opened.receive())
                for tell in tuple(self.worlds):
                    tell(str(ended["host"]), int(ended["pid"]))

    def say_worlds(self) -> None:
        """Tell the launcher how many Worlds there are. Threads call it one at a time: the last number counts."""
        self._is_made.wait(LAST_WORD)
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(json.dumps({"worlds": len(self.worlds)}).encode())

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            os.close(self._kept)


_connection: _Connection | None = None
_changes = threading.Lock()
"""Held while the Worlds of the connection change: threads may make and end Worlds at once."""


def world_begins(env: Mapping[str, str], ended: Ended) -> None:
    """Report a new World of this process to the launcher.

    :param env: the environment of the process
    :param ended: is called, in a thread, for each process of the job that has ended without shutdown()
    """
    global _connection
    with _changes:
        if _connection is not None:
            _connection.worlds.append(ended)
            _connection.say_worlds()
        elif env.get(LAUNCHER) and (place := detect.place(env)) and place.rank is not None:
            _connection = _Connection(env[LAUNCHER], place.rank)
            _connection.worlds.append(ended)


def world_ended(ended: Ended) -> None:
    """Report to the launcher that a World has been shut down: the end of a process without Worlds is no failure.

    :param ended: the same function as for world_begins()
    """
    with _changes:
        if _connection is not None and ended in _connection.worlds:
            _connection.worlds.remove(ended)
            _connection.say_worlds()


def _after_fork() -> None:
    """Close the copy of a forked child: it would keep the connection open after the rank's end."""
    global _connection, _changes
    _changes = threading.Lock()  # another thread of the parent may have held it
    if _connection is not None:
        _connection.close()
    _connection = None


os.register_at_fork(after_in_child=_after_fork)

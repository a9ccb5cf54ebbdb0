# SPDX-License-Identifier: Apache-2.0
"""The ranks of `hpccoll run`: a rank with a World keeps a connection, which ends with its process.

When a process ends without shutdown(), the launcher informs the other ranks at once. Otherwise they would notice the
loss of a rank that was alone on its node only by its silence.
"""

import contextlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from hpccoll.channel import Channel, ChannelError
from hpccoll.tools.launch.listener import Listener


@dataclass
class Rank:
    """A process of the job that has made a World."""

    host: str
    pid: int
    alive: bool = True
    worlds: int = 1
    """Worlds that it has not shut down."""
    cut_off: bool = False
    """Its host does not answer any more."""


class Ranks:
    """The ranks of a job that have connected."""

    def __init__(self, size: int, addresses: Iterable[str]) -> None:
        """Begin to listen to them; the caller enters `listener`.

        :param size: the number of ranks
        :param addresses: addresses of this machine that the ranks can reach
        """
        self._size = size
        self._known: dict[int, Rank] = {}
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Condition()
        self.listener = Listener(addresses, self._serve)

    def _serve(self, channel: Channel) -> None:
        report = json.loads(channel.receive())
        rank = Rank(str(report["host"]), int(report["pid"]))
        number = int(report["rank"])
        with self._lock:
            self._known[number], self._channels[number] = rank, channel
        for earlier in self.lost().values():
            self._tell(earlier, channel)
        try:
            while True:
                worlds = int(json.loads(channel.receive())["worlds"])
                with self._lock:
                    rank.worlds = worlds
                    self._lock.notify_all()
        except OSError as error:
            rank.cut_off = not isinstance(error, ConnectionError)
        except ChannelError:
            pass
        finally:
            with self._lock:
                rank.alive = False
                self._lock.notify_all()
                others = {n: other for n, other in self._channels.items() if n != number and self._known[n].alive}
            if rank.worlds:
                for other in others.values():
                    self._tell(rank, other)

    def _tell(self, lost: Rank, channel: Channel) -> None:
        """Tell one rank that another one has ended without shutdown(), unless its host is only unreachable."""
        if not lost.cut_off:
            with self._lock, contextlib.suppress(OSError):
                channel.send(json.dumps({"host": lost.host, "pid": lost.pid}).encode())

    def have_ended(self) -> bool:
        """Return whether all ranks have made a World, and the processes of all of them have ended."""
        with self._lock:
            return len(self._known) == self._size and not any(rank.alive for rank in self._known.values())

    def unfinished(self, seconds: float) -> dict[int, Rank]:
        """Wait until each rank has ended or has shut down, and return those that have not shut down.

        The launcher can see the end of mpirun before it sees that a connection is closed.

        :param seconds: the longest wait
        :returns: ranks that have ended without shutdown(), were cut off, or still run
        """
        with self._lock:
            self._lock.wait_for(lambda: not any(r.alive and r.worlds for r in self._known.values()), seconds)
            return {n: rank for n, rank in sorted(self._known.items()) if rank.worlds}

    def lost(self) -> dict[int, Rank]:
        """Return the ranks that have ended without shutdown(), or were cut off; none of a job that makes no World."""
        with self._lock:
            return {n: rank for n, rank in sorted(self._known.items()) if not rank.alive and rank.worlds}

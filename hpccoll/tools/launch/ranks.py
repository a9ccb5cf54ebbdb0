# SPDX-License-Identifier: Apache-2.0
"""What `hpccoll run` knows of its ranks: each that has made a World keeps a connection, which ends with its process."""

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
    """The ranks of a job, as far as they have told."""

    def __init__(self, size: int, addresses: Iterable[str]) -> None:
        """Begin to listen to them; the caller enters `listener`.

        :param size: the number of ranks
        :param addresses: addresses of this machine that the ranks can reach
        """
        self._size = size
        self._known: dict[int, Rank] = {}
        self._lock = threading.Lock()
        self.listener = Listener(addresses, self._serve)

    def _serve(self, channel: Channel) -> None:
        report = json.loads(channel.receive())
        rank = Rank(str(report["host"]), int(report["pid"]))
        with self._lock:
            self._known[int(report["rank"])] = rank
        try:
            while True:
                rank.worlds = int(json.loads(channel.receive())["worlds"])
        except OSError as error:
            rank.cut_off = not isinstance(error, ConnectionError)
        except ChannelError:
            pass
        finally:
            rank.alive = False

    def have_ended(self) -> bool:
        """Whether all ranks have made a World, and the processes of all of them have ended."""
        with self._lock:
            return len(self._known) == self._size and not any(rank.alive for rank in self._known.values())

    def lost(self) -> dict[int, Rank]:
        """The ranks that have ended without shutdown(), or were cut off; none of a job that makes no World."""
        with self._lock:
            return {n: rank for n, rank in sorted(self._known.items()) if not rank.alive and rank.worlds}

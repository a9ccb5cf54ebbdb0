# SPDX-License-Identifier: Apache-2.0
"""A way for bytes between two nodes: through MPI, as a training's go, or through TCP where there is no MPI."""

from __future__ import annotations

import socket
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
WINDOW = 8
"""Messages under way at once."""
TAG = 0x4844


class Link(Protocol):
    """The other node of a pair."""

    def send(self, data: Bytes, count: int = 1) -> None:
        """Send `data` so many times."""

    def receive(self, data: Bytes, count: int = 1) -> None:
        """Receive what `send` sent, into the same array each time."""

    def close(self) -> None:
        """Both ends are done."""


class MpiLink:
    """Messages to one rank of an mpi4py communicator."""

    def __init__(self, comm: Any, peer: int) -> None:
        self.comm, self.peer = comm, peer

    def send(self, data: Bytes, count: int = 1) -> None:
        """See Link."""
        self._several(lambda: self.comm.Isend(data, dest=self.peer, tag=TAG), count)

    def receive(self, data: Bytes, count: int = 1) -> None:
        """See Link; each message of the window has memory of its own, as MPI demands."""
        spare = [data, *(np.empty_like(data) for _ in range(min(count, WINDOW) - 1))]
        turn = iter(range(count))
        self._several(
            lambda: self.comm.Irecv(spare[next(turn) % len(spare)], source=self.peer, tag=TAG), count
        )

    def close(self) -> None:
        """See Link: the communicator is somebody else's."""

    def _several(self, start: Any, count: int) -> None:
        under_way = [start() for _ in range(min(count, WINDOW))]
        for _ in range(count - len(under_way)):
            under_way.pop(0).Wait()
            under_way.append(start())
        for request in under_way:
            request.Wait()


class TcpLink:
    """A connection to the other node."""

    def __init__(self, connection: socket.socket, patience: float) -> None:
        connection.settimeout(patience)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection

    def send(self, data: Bytes, count: int = 1) -> None:
        """See Link."""
        for _ in range(count):
            self.connection.sendall(data.data)

    def receive(self, data: Bytes, count: int = 1) -> None:
        """See Link."""
        for _ in range(count):
            rest = data.data
            while len(rest):
                got = self.connection.recv_into(rest)
                if got == 0:
                    raise ConnectionError("the other node closed the connection")
                rest = rest[got:]

    def close(self) -> None:
        """See Link."""
        self.connection.close()

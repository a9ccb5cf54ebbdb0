# SPDX-License-Identifier: Apache-2.0
"""Links for bytes between two nodes: through MPI, like a training's bytes, or through TCP if MPI is not up."""

import socket
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
WINDOW = 8
"""Messages in flight at once."""
TAG = 0x4844


class Link(Protocol):
    """A link to the other node of a pair."""

    def send(self, data: Bytes, count: int = 1) -> None:
        """Send `data`, `count` times."""

    def receive(self, data: Bytes, count: int = 1) -> None:
        """Receive `count` messages that `send` sent, all into the same array."""

    def close(self) -> None:
        """Close the link when both ends are done."""


class MpiLink:
    """Messages to one rank of an mpi4py communicator."""

    def __init__(self, comm: Any, peer: int) -> None:
        self.comm, self.peer = comm, peer

    def send(self, data: Bytes, count: int = 1) -> None:
        """See Link."""
        self._several(lambda: self.comm.Isend(data, dest=self.peer, tag=TAG), count)

    def receive(self, data: Bytes, count: int = 1) -> None:
        """See Link; each message of the window has separate memory, as MPI requires."""
        buffers = [data, *(np.empty_like(data) for _ in range(min(count, WINDOW) - 1))]
        number = iter(range(count))
        self._several(lambda: self.comm.Irecv(buffers[next(number) % len(buffers)], source=self.peer, tag=TAG), count)

    def close(self) -> None:
        """See Link; the communicator stays open, as the caller owns it."""

    def _several(self, start: Any, count: int) -> None:
        in_flight = [start() for _ in range(min(count, WINDOW))]
        for _ in range(count - len(in_flight)):
            in_flight.pop(0).Wait()
            in_flight.append(start())
        for request in in_flight:
            request.Wait()


class TcpLink:
    """A TCP connection to the other node."""

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

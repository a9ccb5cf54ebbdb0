# SPDX-License-Identifier: Apache-2.0
"""A port on which a node accepts connections of the other nodes of its job only.

It is a listener of `hpccoll run` with another secret: a token of this node, which reached the other ranks through their
exchange (MPI, ssh, or a folder of the user), and HPCCOLL_SECRET where the launcher gave one.
"""

import contextlib
import errno
import hmac
import json
import queue
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Self

from hpccoll import inherited
from hpccoll.channel import PATIENCE, Channel, ChannelError
from hpccoll.tools.launch.listener import Listener

LARGE = 256 << 10
"""Bytes of the message that tries whether large ones arrive."""


class Port:
    """Listens at some addresses of this node for the ranks of this job; a context manager."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Open a port at each address; an address that cannot be opened will be unreachable for the others."""
        self.token = secrets.token_hex(32)
        self._listener = Listener(filter(_is_here, dict.fromkeys(addresses)), self._serve, _secret(self.token))
        self.ports: dict[str, int] = dict(self._listener.addresses)
        self.refused = self._listener.refused
        self._kept: dict[int, queue.SimpleQueue[socket.socket]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._listener.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.__exit__(None, None, None)

    def connection_from(self, rank: int, seconds: float) -> socket.socket | None:
        """Wait for the connection that `rank` opened to keep; None if there is none after `seconds`.

        It stays open until both ends have closed it, or this node has left the context.
        """
        with contextlib.suppress(queue.Empty):
            return self._queue(rank).get(timeout=seconds)
        return None

    def _queue(self, rank: int) -> queue.SimpleQueue[socket.socket]:
        with self._lock:
            return self._kept.setdefault(rank, queue.SimpleQueue())

    def _serve(self, channel: Channel) -> None:
        """Identify the rank; keep the connection on its request, else receive its large message."""
        hello = json.loads(channel.receive())
        channel.send(b"heard")
        if hello["keep"]:
            self._queue(hello["rank"]).put(channel.connection)
            self._ended.wait()
            return
        channel.connection.settimeout(2 * PATIENCE)
        channel.receive(LARGE)
        channel.send(b"all")


def connect(address: str, port: int, token: str, rank: int, keep: bool) -> Channel:
    """Connect to the port of another node.

    :param token: the port's
    :param keep: whether the connection will be used after this try
    :raises PermissionError: a process that is not of this job answered
    :raises OSError: nothing answered
    """
    connection = socket.create_connection((address, port), PATIENCE)
    try:
        channel = Channel(connection, _secret(token), connects=True)
        channel.send(json.dumps({"rank": rank, "keep": keep}).encode())
        channel.receive()
        connection.settimeout(2 * PATIENCE)
    except ChannelError:
        connection.close()
        raise PermissionError("answered by a process that is not of this job") from None
    except BaseException:
        connection.close()
        raise
    return channel


def _secret(token: str) -> str:
    """Derive the secret that this job's ranks share with the node of the token."""
    return hmac.digest(inherited.secret().encode(), b"hpccoll doctor" + bytes.fromhex(token), "sha256").hex()


def _is_here(address: str) -> bool:
    """Return whether a process of this host can listen at the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return True

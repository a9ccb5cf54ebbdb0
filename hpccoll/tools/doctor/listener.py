# SPDX-License-Identifier: Apache-2.0
"""A port on which a node hears the other nodes of its job, and nobody else.

Each side proves that it knows the node's token, by an HMAC over challenges of both sides; the token itself never
crosses the connection. The token reached the other ranks through their exchange (MPI, ssh, or a folder of the user),
and HPCCOLL_SECRET goes into the proof where the launcher gave one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import queue
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from hpccoll import config
from hpccoll.checks.finding import Facts

PATIENCE = 4.0
"""Seconds for a connection and its greetings, enough for a lost packet or a busy host."""
LARGE = 256 << 10
MOST = 64
"""Connections whose greetings may be under way at a time; more are closed at once."""
LONGEST = 512
"""Bytes of a greeting."""
CHALLENGE = 32
"""Hexadecimal digits of a challenge."""
PORTS = 50
"""How many ports are tried for one that is free at all addresses."""


class Listener:
    """Listens at some addresses of this node for the ranks of this job; a context manager."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Open one port at the addresses; at one that cannot be had, the others will find nobody."""
        self.token = secrets.token_hex(32)
        self.sockets = _bound(list(dict.fromkeys(addresses)))
        self.port: int = self.sockets[0].getsockname()[1] if self.sockets else 0
        self.refused: Counter[str] = Counter()
        """By address: connections that did not prove to be of this job."""
        self.greeting = threading.BoundedSemaphore(MOST)
        self.connections: dict[int, queue.SimpleQueue[socket.socket]] = {}
        self.lock = threading.Lock()
        for one in self.sockets:
            threading.Thread(target=self._answer, args=(one,), name="hpccoll listener", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # close() alone leaves the port open while a thread is in accept()
            one.close()

    def connection_from(self, rank: int, seconds: float) -> socket.socket | None:
        """Wait for the connection that `rank` opened to keep; None if there is none after `seconds`."""
        with contextlib.suppress(queue.Empty):
            return self._queue(rank).get(timeout=seconds)
        return None

    def _queue(self, rank: int) -> queue.SimpleQueue[socket.socket]:
        with self.lock:
            return self.connections.setdefault(rank, queue.SimpleQueue())

    def _answer(self, at: socket.socket) -> None:
        while at.fileno() >= 0:
            try:
                connection, (address, *_) = at.accept()
            except OSError:
                if at.fileno() >= 0:
                    time.sleep(0.05)  # the listener is being closed, or this process has no descriptor left
                continue
            if self.greeting.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()
            else:
                self._refuse(connection, address)

    def _refuse(self, connection: socket.socket, address: str) -> None:
        with self.lock:
            self.refused[address] += 1
        connection.close()

    def _serve(self, connection: socket.socket, address: str) -> None:
        """Hear who it is; keep the connection if a rank of this job asks for it, else receive its large message."""
        try:
            hello = self._greet(connection)
        except (OSError, ValueError, RecursionError):
            self._refuse(connection, address)
            return
        finally:
            self.greeting.release()
        connection.settimeout(2 * PATIENCE)
        if hello["keep"]:
            self._queue(hello["rank"]).put(connection)
            return
        with connection, contextlib.suppress(OSError):
            left = LARGE
            while left and (got := len(connection.recv(left))):
                left -= got
            connection.sendall(b"all\n")

    def _greet(self, connection: socket.socket) -> Facts:
        """Exchange challenges and proofs.

        :raises ValueError: the peer is no rank of this job
        """
        until = time.monotonic() + PATIENCE
        hello = _checked(_greeting(connection, until), {"rank": int, "keep": bool, "challenge": str})
        mine = secrets.token_hex(CHALLENGE // 2)
        about = [hello["challenge"], mine, str(hello["rank"]), str(hello["keep"])]
        _send(connection, {"challenge": mine, "proof": _proof(self.token, "listener", about)})
        answer = _checked(_greeting(connection, until), {"proof": str})
        if not hmac.compare_digest(answer["proof"].encode(), _proof(self.token, "caller", about).encode()):
            raise ValueError("the caller does not know the token")
        return hello


def connect(address: str, port: int, token: str, rank: int, keep: bool) -> socket.socket:
    """Connect to the listener of another node.

    :param token: the listener's
    :param keep: whether the connection will be used after this try
    :raises PermissionError: a process that is not of this job answered
    :raises OSError: nothing answered
    """
    connection = socket.create_connection((address, port), PATIENCE)
    until = time.monotonic() + PATIENCE
    try:
        mine = secrets.token_hex(CHALLENGE // 2)
        _send(connection, {"rank": rank, "keep": keep, "challenge": mine})
        try:
            answer = _checked(_greeting(connection, until), {"challenge": str, "proof": str})
        except (ValueError, RecursionError):
            raise PermissionError("answered by a process that is not of this job") from None
        about = [mine, answer["challenge"], str(rank), str(keep)]
        if not hmac.compare_digest(answer["proof"].encode(), _proof(token, "listener", about).encode()):
            raise PermissionError("answered by a process that is not of this job")
        _send(connection, {"proof": _proof(token, "caller", about)})
        connection.settimeout(PATIENCE)
    except BaseException:
        connection.close()
        raise
    return connection


def line(connection: socket.socket, until: float) -> bytes:
    """Read up to a newline, byte by byte, so that nothing after it is consumed.

    :param until: of time.monotonic()
    :raises OSError: it does not come in time, or is too long
    """
    read = b""
    while not read.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        byte = connection.recv(1)
        if not byte or len(read) >= LONGEST:
            raise ConnectionError("closed" if not byte else "a line is too long")
        read += byte
    return read


def _greeting(connection: socket.socket, until: float) -> Any:
    return json.loads(str(line(connection, until), "ascii"))


def _send(connection: socket.socket, values: Facts) -> None:
    connection.sendall(json.dumps(values).encode() + b"\n")


def _checked(values: Any, kinds: dict[str, type]) -> Facts:
    """Give the values back if they are these, of these types.

    :raises ValueError: they are not
    """
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
        raise ValueError(f"not {', '.join(kinds)}")
    if len(values.get("challenge", CHALLENGE * "0")) != CHALLENGE:
        raise ValueError("no challenge")
    return values


def _proof(token: str, side: str, about: Sequence[str]) -> str:
    """Prove that this process has the token; `side` keeps one side's proof from serving the other."""
    made = hmac.new(config.secret().encode(), b"hpccoll doctor 1", hashlib.sha256)
    for word in (token, side, *about):
        made.update(len(word.encode()).to_bytes(8, "little") + word.encode())
    return made.hexdigest()


def _bound(addresses: list[str]) -> list[socket.socket]:
    """Sockets that listen at the addresses, all on one port; an address at which none can listen is left out."""
    made: list[socket.socket] = []
    for _ in range(PORTS):
        for one in made:
            one.close()
        made, busy = [], False
        for address in addresses:
            try:
                made.append(socket.create_server((address, made[0].getsockname()[1] if made else 0), backlog=512))
            except OSError as error:
                busy |= error.errno == errno.EADDRINUSE
        if not busy:
            break
    return made

# SPDX-License-Identifier: Apache-2.0
"""Authenticated messages over TCP, between processes that share a secret: `hpccoll run` and the ranks that it started.

Both ends send 32 random bytes, derive the key of this connection from them, and prove by an HMAC that they have the
key. Each message has an HMAC-SHA256 over its direction, its number and its bytes, so that no message can be forged,
replayed or reordered. The bytes are not encrypted.
"""

import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterable

from hpccoll.errors import HpccollError

__all__ = ["Channel", "ChannelError", "connect", "new_secret", "parse", "text_of"]

HEADER = struct.Struct(">Q32s")
"""The length of the message and its HMAC."""
NONCE = 32
PATIENCE = 5.0
"""Time limit in seconds for an address to accept a connection, and for the other end to prove the secret."""
AGAIN = 0.05
"""Seconds between two attempts to connect, or to find out whether a process has ended."""
START = 120.0
"""Seconds for which connect() retries an end that listens but does not answer; HPCCOLL_START_TIMEOUT's default."""
LONGEST = 4096
"""Bytes of a message, unless more are expected."""


class ChannelError(HpccollError):
    """The other end does not know the secret, or violated the protocol."""


class ChannelClosedError(ChannelError):
    """The other end has closed the connection."""


class ChannelBusyError(ChannelError):
    """The other end has accepted the connection, and has dropped it or does not answer."""


def new_secret() -> str:
    """Make a secret for one job: 32 random bytes, in hexadecimal."""
    return secrets.token_hex(NONCE)


def text_of(secret: str, addresses: list[tuple[str, int]]) -> str:
    """Write the value of the variable: `SECRET@HOST:PORT,HOST:PORT`."""
    return f"{secret}@{','.join(f'{host}:{port}' for host, port in addresses)}"


def parse(text: str) -> tuple[str, list[tuple[str, int]]]:
    """Read the secret and the addresses, see `text_of`."""
    secret, _, places = text.partition("@")
    pairs = [place.rpartition(":") for place in places.split(",")]
    return secret, [(host, int(port)) for host, _, port in pairs]


class Channel:
    """One end of a connection. Its owner closes it."""

    def __init__(self, connection: socket.socket, secret: str, *, connects: bool) -> None:
        """Exchange nonces and proofs with the other end, which has 5 seconds for it, and as long for its first message.

        :param connection: connected
        :param secret: what both ends know, in hexadecimal
        :param connects: True on the end that connected, False on the one that listened
        :raises ChannelError: the other end has closed the connection, or does not know the secret
        :raises OSError: the connection failed, or took too long
        """
        self.connection = connection
        self._secret, self._other = secret, connection.getpeername()[:2]
        until = time.monotonic() + PATIENCE
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE)
        mine = secrets.token_bytes(NONCE)
        connection.sendall(mine)
        theirs = self._read(NONCE, until)
        nonces = mine + theirs if connects else theirs + mine
        self._key = hmac.digest(bytes.fromhex(secret), nonces, "sha256")
        self._directions = (b">", b"<") if connects else (b"<", b">")  # of sent messages, of received messages
        self._sent = self._received = 0
        self._sends = threading.Lock()
        proof, expected = (hmac.digest(self._key, direction, "sha256") for direction in self._directions)
        connection.sendall(proof)
        if not hmac.compare_digest(self._read(len(expected), until), expected):
            raise ChannelError("the other end does not know the secret")
        connection.settimeout(PATIENCE)

    def send(self, message: bytes) -> None:
        """Send a message; several threads may do so at once.

        :raises OSError: the connection failed
        """
        with self._sends:
            code = self._code(self._directions[0], self._sent, message)
            self.connection.sendall(HEADER.pack(len(message), code))
            self.connection.sendall(message)
            self._sent += 1

    def receive(self, longest: int = LONGEST) -> bytes:
        """Wait for a message.

        :param longest: more bytes than this are refused before they are read
        :returns: the message, which the other end has sent as it is
        :raises ChannelError: the other end has closed the connection, or does not know the secret
        :raises OSError: the connection failed
        """
        length, code = HEADER.unpack(self._read(HEADER.size))
        if length > longest:
            raise ChannelError(f"a message of {length} bytes, {longest} at most were expected")
        message = self._read(length)
        if not hmac.compare_digest(code, self._code(self._directions[1], self._received, message)):
            raise ChannelError("a message whose sender does not know the secret")
        self._received += 1
        self.connection.settimeout(None)
        return message

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def other_process_has_ended(self, error: Exception) -> bool:
        """Whether the connection has failed because the listening process has ended, so that its port is closed.

        False if that machine is not reachable or does not answer, or if the process has closed the connection and
        still listens: it may have given up this end. A machine after a network outage gets a reset in that case, as it
        does after the end of a process.

        :param error: what send() or receive() has raised, on the end that connected
        """
        if not isinstance(error, ConnectionError | ChannelError):
            return False
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                with socket.create_connection(self._other, PATIENCE) as connection:
                    Channel(connection, self._secret, connects=True)
                return False
            except ConnectionRefusedError:
                return True
            except TimeoutError:
                return False
            except (OSError, ChannelError):
                time.sleep(AGAIN)  # a process that is ending accepts, and resets
        return False

    def _code(self, direction: bytes, number: int, message: bytes) -> bytes:
        return hmac.digest(self._key, direction + struct.pack(">Q", number) + message, "sha256")

    def _read(self, count: int, until: float | None = None) -> bytes:
        data = bytearray()
        while len(data) < count:
            if until is not None:
                self.connection.settimeout(max(1e-3, until - time.monotonic()))  # a byte now and then gains no time
            part = self.connection.recv(min(count - len(data), 1 << 20))
            if not part:
                raise ChannelClosedError("the other end has closed the connection")
            data += part
        return bytes(data)


def connect(addresses: Iterable[tuple[str, int]], secret: str, seconds: float = START) -> Channel:
    """Connect to the first address that answers.

    An end that listens may be busy with so many connections that it drops this one, which then tries again.

    :param seconds: for how long; an end that refuses connections, or does not know the secret, is not tried again
    :raises OSError: none of them does
    """
    places, until = list(addresses), time.monotonic() + seconds
    while True:
        problems, is_busy = [], False
        for host, port in places:
            try:
                return _connect_to(host, port, secret)
            except (OSError, ChannelError) as error:
                problems.append(f"{host} port {port}: {error}")
                is_busy |= isinstance(error, ChannelBusyError)
        if not is_busy or time.monotonic() > until:
            raise OSError("; ".join(problems) or "no address")
        time.sleep(AGAIN)


def _connect_to(host: str, port: int, secret: str) -> Channel:
    connection = socket.create_connection((host, port), PATIENCE)
    try:
        return Channel(connection, secret, connects=True)
    except (TimeoutError, ConnectionResetError, ChannelClosedError) as error:
        connection.close()
        raise ChannelBusyError(str(error)) from error
    except BaseException:
        connection.close()
        raise

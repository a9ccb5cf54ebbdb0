# SPDX-License-Identifier: Apache-2.0
"""Accepts connections of processes that know the secret, on chosen addresses; a thread serves each of them."""

import contextlib
import platform
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from hpccoll import channel
from hpccoll.text import listed
from hpccoll.tools.launch import limits, processes
from hpccoll.tools.launch.agent_start import THIS_MACHINE
from hpccoll.tools.launch.job import LaunchError

LOOPBACK = "127.0.0.1"
DISCARD = 9
"""Some port; nothing is sent to it."""
SILENCE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""A host that does not answer for 10 seconds is cut off."""
MOST = 512
"""Handshakes that may be under way at a time. One more drops the oldest one of the address that has most of them: a
stranger can take 5 seconds, and a rank that is dropped tries again."""


class _Server(socketserver.ThreadingTCPServer):
    """Listens on one address."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        address: str,
        admit: Callable[[socket.socket, str], None],
        serve: Callable[[socket.socket, str], None],
    ) -> None:
        self.admit, self.serve, self.said = admit, serve, False
        super().__init__((address, 0), socketserver.BaseRequestHandler)

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", address: object) -> None:
        """Serve one connection in a new thread."""
        assert isinstance(request, socket.socket)
        assert isinstance(address, tuple)
        self.admit(request, address[0])
        super().process_request(request, address)

    def finish_request(self, request: "socket.socket | tuple[bytes, socket.socket]", address: object) -> None:
        """Serve one connection, in this thread."""
        assert isinstance(request, socket.socket)
        assert isinstance(address, tuple)
        self.serve(request, address[0])

    def handle_error(self, *_: object) -> None:
        """Say once why a connection gets no thread: its other end only sees that it is closed."""
        try:
            with limits.named():
                raise  # what serves it handles all else
        except LaunchError as error:
            if not self.said:
                processes.say(f"{error}; until then, connections of other processes are refused")
            self.said = True


class Listener:
    """Listens while it is a context; a process needs `variable` to connect."""

    def __init__(self, addresses: Iterable[str], serve: Callable[[channel.Channel], None], secret: str = "") -> None:
        """Begin to listen.

        :param addresses: addresses of this machine
        :param serve: serves one connection, in a thread; its exceptions end the connection
        :param secret: shared with the other ends; "": a new one
        """
        self.secret, self._serve = secret or channel.new_secret(), serve
        self._handshakes: dict[socket.socket, str] = {}
        """Under way, oldest first, with the other end's address."""
        self._servers = [_Server(address, self._admit, self._accept) for address in addresses]
        self.addresses: list[tuple[str, int]] = [server.server_address[:2] for server in self._servers]  # type: ignore[misc]
        self.variable = channel.text_of(self.secret, self.addresses)
        self.refused: Counter[str] = Counter()
        """By address: connections that did not prove to know the secret."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        for server in self._servers:
            server.shutdown()
            server.socket.close()

    def _admit(self, connection: socket.socket, address: str) -> None:
        with self._lock:
            self._handshakes[connection] = address
            if len(self._handshakes) <= MOST:
                return
            most = Counter(self._handshakes.values()).most_common(1)[0][0]
            oldest = next(other for other, source in self._handshakes.items() if source == most)
            del self._handshakes[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end

    def _accept(self, connection: socket.socket, address: str) -> None:
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in SILENCE.items():
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            opened = channel.Channel(connection, self.secret, connects=False)
        except (OSError, channel.ChannelError):
            with self._lock:
                self.refused[address] += 1
            return
        finally:
            with self._lock:
                self._handshakes.pop(connection, None)
        with contextlib.suppress(OSError, ValueError, channel.ChannelError):  # a rank that has ended
            self._serve(opened)


def addresses_towards(hosts: Sequence[str], *, needed: bool = True) -> list[str]:
    """Find the addresses of this machine that the hosts can reach: those of the routes to them.

    A name that this machine cannot resolve may be one that only ssh knows, from its configuration: its host may come
    through any interface.

    :param hosts: names or addresses, with or without a user; none: only this machine
    :param needed: whether the job cannot do without a connection from the hosts
    :raises LaunchError: not even this machine can, or no other can and it is needed
    """
    found, all_resolved = [], True
    for host in hosts:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host.rpartition("@")[2], DISCARD))  # a datagram: chooses a route, sends nothing
                found.append(str(probe.getsockname()[0]))
            except (OSError, UnicodeError):  # UnicodeError: no name that DNS could have
                all_resolved = False
    if not all_resolved:
        from hpccoll.net.interfaces import interfaces  # which most jobs do not need

        found += [one["address"] for one in interfaces() if one["up"] and not one["address"].startswith("127.")]
    if not found:
        others = [host for host in hosts if host not in THIS_MACHINE]
        if needed and others:
            raise LaunchError(
                f"host {platform.node()} has no IPv4 address that leads to {listed(others)}, and ranks connect to one: "
                "give the hosts IPv4 addresses (`ip -4 address` shows them)"
            )
        _check_loopback()
    return list(dict.fromkeys(found)) or [LOOPBACK]


def _check_loopback() -> None:
    """Check that processes of this machine reach one another.

    :raises LaunchError: the loopback interface is down, or has no address
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((LOOPBACK, 0))
            probe.connect((LOOPBACK, DISCARD))
        except OSError as error:
            raise LaunchError(
                f"host {platform.node()}: its processes cannot reach one another at {LOOPBACK} ({error.strerror}): "
                f"`ip link set lo up`, and `ip address` should show {LOOPBACK}/8 there"
            ) from None

# SPDX-License-Identifier: Apache-2.0
"""The listener of `hpccoll run` and of the doctor: processes with the secret are served, and nobody else."""

import contextlib
import os
import random
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from hpccoll import channel
from hpccoll.tools.launch import listener as module
from hpccoll.tools.launch.listener import Listener, addresses_towards

HERE = "127.0.0.1"
MANY = 200
"""Messages of a thread."""
GREETING = 2 * channel.NONCE
"""Bytes that an end sends before its first message: its nonce, and the proof that it has the key."""


class Served:
    """A listener that keeps what it was sent."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.listener = Listener([HERE], self._serve)
        ((self.host, self.port),) = self.listener.addresses

    def __enter__(self) -> Self:
        self.listener.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.__exit__(None, None, None)

    def _serve(self, connection: channel.Channel) -> None:
        while True:
            self.messages.append(connection.receive())
            connection.send(b"heard")

    def connect(self, secret: str = "") -> channel.Channel:
        return channel.connect(self.listener.addresses, secret or self.listener.secret)

    def refused_become(self, number: int) -> None:
        becomes(lambda: self.listener.refused[HERE], number)


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as made:
        yield made


def becomes(what: Callable[[], int], number: int) -> None:
    deadline = time.monotonic() + 60
    while what() != number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert what() == number


def test_threads_send_at_once(served: Served) -> None:
    """Each message has a number in its HMAC: messages that were mixed would end the connection."""
    with contextlib.closing(served.connect()) as connection:
        senders = [threading.Thread(target=send_many, args=(connection, bytes([i]) * 3000)) for i in range(4)]
        for sender in senders:
            sender.start()
        for _ in range(4 * MANY):
            assert connection.receive() == b"heard"
        for sender in senders:
            sender.join()
    assert sorted(served.messages) == [bytes([i]) * 3000 for i in range(4) for _ in range(MANY)]


def send_many(connection: channel.Channel, message: bytes) -> None:
    for _ in range(MANY):
        connection.send(message)


def told(served: Served, greeting: bytes) -> bytes:
    """All that a listener answers to a stranger, until it closes the connection."""
    heard = b""
    with socket.create_connection((served.host, served.port), 20) as stranger, contextlib.suppress(OSError):
        stranger.sendall(greeting)
        stranger.shutdown(socket.SHUT_WR)
        while data := stranger.recv(1000):
            heard += data
    return heard


def test_a_stranger_is_not_served(served: Served) -> None:
    """Noise, another protocol, nothing, another secret: closed and counted; its own words come back to nobody."""
    odd = [b"", b"\n", b"GET / HTTP/1.0\r\n\r\n", bytes(GREETING), os.urandom(10_000), bytes(4096)]
    for greeting in odd:
        heard = told(served, greeting)
        assert len(heard) <= GREETING
        assert bytes.fromhex(served.listener.secret) not in heard
        assert served.listener.secret.encode() not in heard
    for wrong in (channel.new_secret(), "00" * 32):
        with pytest.raises(OSError, match="does not know the secret"):
            served.connect(wrong)
    served.refused_become(len(odd) + 2)
    assert not served.messages


def test_a_greeting_cannot_be_repeated_or_reflected(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Recorded(socket.socket):
        def sendall(self, data: bytes, *_: int) -> None:  # type: ignore[override]
            sent.append(bytes(data))
            super().sendall(data)

    with monkeypatch.context() as patch:
        patch.setattr(channel.socket, "create_connection", lambda at, _: (one := Recorded(), one.connect(at))[0])
        known = served.connect()
    known.send(b"once")
    assert known.receive() == b"heard"
    known.close()
    told(served, b"".join(sent))
    with socket.create_connection((served.host, served.port), 20) as mirror, contextlib.suppress(OSError):
        while data := mirror.recv(1000):
            mirror.sendall(data)
    served.refused_become(2)
    assert served.messages == [b"once"]


def test_a_message_cannot_be_repeated_or_huge(served: Served) -> None:
    huge = served.connect()
    huge.connection.sendall(struct.pack(">Q32s", 1 << 62, b""))
    known = served.connect()
    known.send(b"once")
    assert known.receive() == b"heard"
    known._sent -= 1
    known.send(b"once")
    for one in (huge, known):
        with contextlib.closing(one), pytest.raises((channel.ChannelError, OSError)):
            one.receive()
    assert served.messages == [b"once"]
    assert not served.listener.refused


def test_silent_and_slow_callers_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """More strangers than are heard at a time; each sends a byte now and then, and gains no time by it."""
    monkeypatch.setattr(channel, "PATIENCE", 1.5)
    monkeypatch.setattr(module, "MOST", 8)
    ended = threading.Event()
    with Served() as served, contextlib.ExitStack() as open_ones:
        callers = [
            open_ones.enter_context(socket.create_connection((served.host, served.port)))
            for _ in range(module.MOST + 4)
        ]

        def drip() -> None:
            while not ended.wait(0.2):
                for caller in callers:
                    with contextlib.suppress(OSError):
                        caller.send(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            served.refused_become(len(callers))
        finally:
            ended.set()
            thread.join(60)
        monkeypatch.setattr(channel, "PATIENCE", 30.0)
        known = served.connect()
        with contextlib.closing(known):
            known.send(b"now")
            assert known.receive() == b"heard"


def test_silent_callers_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more strangers than are heard at a time: the oldest handshake is dropped for the newest."""
    monkeypatch.setattr(module, "MOST", 8)
    with Served() as served, contextlib.ExitStack() as open_ones:
        for _ in range(10 * module.MOST):
            open_ones.enter_context(socket.create_connection((served.host, served.port)))
        with contextlib.closing(channel.connect(served.listener.addresses, served.listener.secret, 0.0)) as known:
            known.send(b"now")
            assert known.receive() == b"heard"


def test_a_handshake_that_was_dropped_is_tried_again(served: Served) -> None:
    """The listener drops the first two."""
    accept, dropped = served.listener._servers[0].serve, []

    def drop(connection: socket.socket, address: str) -> None:
        dropped.append(address)
        accept(connection, address) if len(dropped) > 2 else connection.close()

    served.listener._servers[0].serve = drop
    with contextlib.closing(served.connect()) as known:
        known.send(b"now")
        assert known.receive() == b"heard"
    assert len(dropped) == 3


def test_an_end_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PATIENCE", 0.3)
    with socket.create_server((HERE, 0)) as silent, pytest.raises(OSError, match="timed out"):
        channel.connect([silent.getsockname()], channel.new_secret(), 1.0)


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_mangled_greetings(served: Served, count: int) -> None:
    """Greetings of a stranger who knows the form, cut, lengthened and changed."""
    rng = random.Random(1)
    for _ in range(count):
        data = bytearray(secrets.token_bytes(GREETING) + channel.HEADER.pack(rng.choice([0, 5, 1 << 63]), bytes(32)))
        for _ in range(rng.randint(0, 5)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randint(0, 40)] = rng.randbytes(rng.randint(0, 40))
        assert len(told(served, bytes(data))) <= GREETING
    served.refused_become(count)
    assert not served.messages


def test_addresses_are_those_of_the_routes() -> None:
    assert addresses_towards([]) == ["127.0.0.1"]
    assert addresses_towards(["me@127.0.0.1", "localhost"]) == ["127.0.0.1"]


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b"])
def test_a_host_of_unknown_address_may_come_through_any_interface(name: str) -> None:
    """Only ssh may know the name. The documentation's network 192.0.2.0/24 has the default route, if there is one."""
    assert set(addresses_towards(["192.0.2.1"], needed=False)) <= {
        *addresses_towards([name], needed=False),
        "127.0.0.1",
    }


def test_no_address_that_leads_to_another_host(needs: Callable[..., None]) -> None:
    """A new network namespace has loopback alone, which another host would take for its own."""
    needs("root", "unshare", "ip")
    ask = "import sys; from hpccoll.tools.launch.listener import addresses_towards as to; "
    ask += "print(to([]), to(['localhost']), to(['192.0.2.1'], needed=False)); to(['192.0.2.1'])"
    words = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, "-P", "-c", ask]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['127.0.0.1'] ['127.0.0.1'] ['127.0.0.1']\n"
    assert "has no IPv4 address that leads to 192.0.2.1, and ranks connect to one" in done.stderr, done.stderr

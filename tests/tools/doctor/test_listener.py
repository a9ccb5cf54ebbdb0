# SPDX-License-Identifier: Apache-2.0
"""The port on which the doctor's nodes hear each other: ranks of the job are heard, and nobody else."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from reports import report, says

from hpccoll.checks.finding import NOTE
from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import listener as door
from hpccoll.tools.doctor import reach
from hpccoll.tools.doctor.listener import Listener, connect

HERE = "127.0.0.1"
HELLO = {"rank": 1, "keep": True, "challenge": "0" * 32}
ODD = [
    b"\n", b"[]\n", b"null\n", b"{}\n", b'"text"\n', b"{\n", b"\x00\xff\n", b"[" * 500 + b"\n", b"9" * 500 + b"\n",
    b"GET / HTTP/1.0\r\n\r\n", b"a" * 5000, json.dumps(HELLO | {"rank": "1"}).encode() + b"\n",
    json.dumps(HELLO | {"rank": True}).encode() + b"\n", json.dumps(HELLO | {"keep": 1}).encode() + b"\n",
    json.dumps(HELLO | {"challenge": "short"}).encode() + b"\n", json.dumps(HELLO | {"more": 1}).encode() + b"\n",
    json.dumps(HELLO).encode() + b'\n{"proof": "' + b"0" * 64 + b'"}\n', json.dumps(HELLO).encode() + b"\n[]\n",
    json.dumps(HELLO).encode() + b'\n{"proof": null}\n',
]  # fmt: skip
"""What a stranger may say."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener([HERE]) as made:
        yield made


def said(to: Listener, greeting: bytes) -> bytes:
    """All that a listener answers to a stranger, until it closes the connection."""
    heard = b""
    with socket.create_connection((HERE, to.port), 20) as stranger:
        try:
            stranger.sendall(greeting)
            stranger.shutdown(socket.SHUT_WR)
            while data := stranger.recv(1000):
                heard += data
        except OSError:
            pass  # it was closed before all was said
    return heard


def becomes(what: Callable[[], int], number: int) -> None:
    deadline = time.monotonic() + 30
    while what() != number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert what() == number


def test_ranks_of_the_job_are_heard(listener: Listener) -> None:
    kept = connect(HERE, listener.port, listener.token, 5, keep=True)
    accepted = listener.connection_from(5, 10)
    assert accepted is not None
    kept.sendall(b"x")
    assert accepted.recv(1) == b"x"
    kept.close()
    accepted.close()
    assert not listener.refused


def test_a_stranger_learns_nothing_and_is_counted(listener: Listener) -> None:
    """As it was found: the port gave its nonce to anybody, took anybody for a rank, and printed tracebacks."""
    for greeting in ODD:
        assert listener.token.encode() not in said(listener, greeting)
    becomes(lambda: listener.refused[HERE], len(ODD))
    assert listener.connection_from(1, 0.01) is None
    with pytest.raises(PermissionError, match="not of this job"):
        connect(HERE, listener.port, "another", 5, keep=False)
    becomes(lambda: listener.refused[HERE], len(ODD) + 1)


def test_what_a_rank_said_cannot_be_said_again(listener: Listener) -> None:
    sent = []

    class Recorded(socket.socket):
        def sendall(self, data: bytes, *_: int) -> None:  # type: ignore[override]
            sent.append(data)
            super().sendall(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door.socket, "create_connection", lambda at, _: (one := Recorded(), one.connect(at))[0])
        connect(HERE, listener.port, listener.token, 1, keep=True).close()
    accepted = listener.connection_from(1, 10)
    assert accepted
    accepted.close()
    assert len(sent) == 2
    said(listener, b"".join(sent))
    becomes(lambda: listener.refused[HERE], 1)
    assert listener.connection_from(1, 0.01) is None


def test_the_launchers_secret_is_a_part_of_the_proof(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOLL_SECRET", "word")
    connect(HERE, listener.port, listener.token, 1, keep=True).close()
    accepted = listener.connection_from(1, 10)
    assert accepted
    accepted.close()
    token, about = "t", ["a", "b", "1", "True"]
    with_secret = door._proof(token, "caller", about)
    monkeypatch.delenv("HPCCOLL_SECRET")
    assert door._proof(token, "caller", about) != with_secret


def test_silent_callers_hold_up_nobody(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """More callers than are heard at a time, each of which says a byte and no more."""
    monkeypatch.setattr(door, "PATIENCE", 1.5)
    callers = [socket.create_connection((HERE, listener.port)) for _ in range(door.MOST + 20)]
    for caller in callers:
        caller.send(b"{")
    becomes(lambda: listener.refused[HERE], len(callers))
    for caller in callers:
        caller.close()
    monkeypatch.undo()
    connect(HERE, listener.port, listener.token, 1, keep=True).close()
    accepted = listener.connection_from(1, 10)
    assert accepted
    accepted.close()


def test_it_is_open_where_it_was_asked_to_be_and_then_closed() -> None:
    with Listener(["127.0.0.2", "127.0.0.3", "127.0.0.2", "192.0.2.1"]) as two:
        for address in ("127.0.0.2", "127.0.0.3"):
            connect(address, two.port, two.token, 1, keep=True).close()
            accepted = two.connection_from(1, 10)
            assert accepted
            accepted.close()
        with pytest.raises(ConnectionRefusedError):
            connect(HERE, two.port, two.token, 1, keep=True)
    for address in ("127.0.0.2", "127.0.0.3"):
        with pytest.raises(ConnectionRefusedError):
            connect(address, two.port, two.token, 1, keep=True)


def test_who_listens_and_where() -> None:
    here = {"name": "lo0", "address": "127.0.0.2", "up": True}
    pair = [report(0, 0, addresses={"interfaces": [here]}), report(1, 1), report(2, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach.addresses, "usable", lambda c: c.facts["addresses"]["interfaces"])
        assert reach.listen(Survey(pair[:1]), 0) is None, "a single host has nobody to hear"
        assert reach.listen(Survey(pair), 2) is None, "one rank of a node listens"
        assert reach.candidates(pair[0], []) == ["127.0.0.2"] == reach.candidates(pair[0], ["lo0"])
        assert reach.candidates(pair[0], ["eth0"]) == []


def test_strangers_are_reported() -> None:
    pair = [report(0, 0), report(1, 1)]
    (finding,) = reach.judge(Survey(pair, 2, strangers=[("h2", {"10.0.0.9": 3, "10.0.0.8": 1})]))
    says(finding, NOTE, "h2: 4 connections to the port of this test were not of this job", "10.0.0.8, 10.0.0.9")


# ---- fuzz ------------------------------------------------------------------------------------------------


def mangled(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(ODD))
    for _ in range(rng.randint(0, 5)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    return bytes(data[:6000])


def fuzz_listener(listener: Listener, count: int) -> None:
    rng = random.Random(1)
    for _ in range(count):
        assert listener.token.encode() not in said(listener, mangled(rng))
    becomes(lambda: listener.refused[HERE], count)


def fuzz_caller(count: int) -> None:
    """A listener of somebody else, which answers anything: an OSError, never anything else."""
    rng = random.Random(2)
    with socket.create_server((HERE, 0)) as server:

        def answer() -> None:
            for _ in range(count):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(mangled(rng))

        thread = threading.Thread(target=answer)
        thread.start()
        for _ in range(count):
            with pytest.raises(OSError):
                connect(HERE, server.getsockname()[1], "token", 1, keep=False)
        thread.join(30)


def test_mangled_greetings(listener: Listener) -> None:
    fuzz_listener(listener, 200)
    fuzz_caller(200)


@pytest.mark.slow
def test_many_mangled_greetings(listener: Listener) -> None:
    fuzz_listener(listener, 5000)
    fuzz_caller(5000)

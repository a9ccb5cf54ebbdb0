# SPDX-License-Identifier: Apache-2.0
"""The port on which the doctor's nodes hear each other: ranks of the job are heard, and nobody else.

What strangers may say to a listener of ours is tried in tests/tools/launch/test_listener.py.
"""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from reports import report, says

from hpccoll.checks.finding import NOTE
from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import reach
from hpccoll.tools.doctor.port import LARGE, Port, connect

HERE = "127.0.0.1"


@pytest.fixture
def port() -> Iterator[Port]:
    with Port([HERE]) as made:
        yield made


def becomes(what: Callable[[], int], number: int) -> None:
    deadline = time.monotonic() + 60
    while what() != number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert what() == number


def test_ranks_of_the_job_are_heard(port: Port) -> None:
    kept = connect(HERE, port.ports[HERE], port.token, 5, keep=True).connection
    accepted = port.connection_from(5, 30)
    assert accepted is not None
    kept.sendall(b"x")
    assert accepted.recv(1) == b"x"
    kept.close()
    accepted.close()
    tried = connect(HERE, port.ports[HERE], port.token, 6, keep=False)
    with contextlib.closing(tried):
        tried.send(bytes(LARGE))
        assert tried.receive() == b"all"
    assert port.connection_from(6, 0.01) is None
    assert not port.refused


def test_a_stranger_is_no_rank_and_is_counted(port: Port) -> None:
    """As it was found: the port gave its nonce to anybody, took anybody for a rank, and printed tracebacks."""
    with socket.create_connection((HERE, port.ports[HERE]), 20) as stranger:
        stranger.sendall(b'{"rank": 1, "keep": true}\n' + os.urandom(200))
    becomes(lambda: port.refused[HERE], 1)
    with pytest.raises(PermissionError, match="not of this job"):
        connect(HERE, port.ports[HERE], "00" * 32, 5, keep=False)
    becomes(lambda: port.refused[HERE], 2)
    assert port.connection_from(1, 0.01) is None


def test_the_launchers_secret_is_a_part_of_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOLL_SECRET", "word")
    with Port([HERE]) as port:
        connect(HERE, port.ports[HERE], port.token, 1, keep=True).close()
        monkeypatch.delenv("HPCCOLL_SECRET")
        with pytest.raises(PermissionError, match="not of this job"):
            connect(HERE, port.ports[HERE], port.token, 1, keep=True)


def test_it_is_open_where_it_was_asked_to_be_and_then_closed() -> None:
    with Port(["127.0.0.2", "127.0.0.3", "127.0.0.2", "192.0.2.1"]) as two:
        assert list(two.ports) == ["127.0.0.2", "127.0.0.3"]
        for address, number in two.ports.items():
            connect(address, number, two.token, 1, keep=True).close()
            accepted = two.connection_from(1, 30)
            assert accepted
            accepted.close()
            with pytest.raises(ConnectionRefusedError):
                connect(HERE, number, two.token, 1, keep=True)
    for address, number in two.ports.items():
        with pytest.raises(ConnectionRefusedError):
            connect(address, number, two.token, 1, keep=True)


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


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_port_of_somebody_else_that_answers_anything(count: int) -> None:
    """An OSError, never anything else."""
    rng = random.Random(2)
    with socket.create_server((HERE, 0)) as server:

        def answer() -> None:
            for _ in range(count):
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1000)
                    connection.sendall(rng.randbytes(rng.choice([0, 1, 31, 32, 33, 64, 100, 200])))

        thread = threading.Thread(target=answer)
        thread.start()
        for _ in range(count):
            with pytest.raises(OSError):
                connect(HERE, server.getsockname()[1], "00" * 32, 1, keep=False)
        thread.join(60)

# SPDX-License-Identifier: Apache-2.0
"""The coordinator's connections: exchanges of a generation, a loss in the middle, and strangers on its port."""

import json
import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hpccoll
from hpccoll import channel
from hpccoll.launch_protocol import Place
from hpccoll.rendezvous.coordinator import Coordinator
from hpccoll.tools.launch.elastic.events import Answer, Came, Early, Form, Leaving
from hpccoll.tools.launch.elastic.server import Cut, HostCame, Server

MADE: list[Coordinator] = []


class Told(queue.SimpleQueue):
    def next(self) -> Any:
        return self.get(timeout=30)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def server(told: Told) -> Iterator[Server]:
    made = Server(["127.0.0.1"], told.put)
    with made.listener:
        yield made
        while MADE:
            MADE.pop()._channel.connection.shutdown(socket.SHUT_RDWR)  # its thread closes it


def workers(server: Server, told: Told, count: int) -> list[Coordinator]:
    """Let workers come and be in one generation."""
    made = [Coordinator(server.listener.variable, number) for number in range(count)]
    MADE.extend(made)
    for number, worker in enumerate(made):
        worker.say({"come": 0, "lost": {}, "has_state": False})
        assert told.next() == Came(number, 0)
    server.form(Form(1, tuple(range(count))))
    for rank, worker in enumerate(made):
        news = worker._next(30)
        assert (news["rank"], news["size"]) == (rank, count)
        worker.generation = news["generation"]
    return made


def never() -> None:
    """What a worker does while it waits."""


def test_an_exchange(server: Server, told: Told) -> None:
    first, second = workers(server, told, 2)
    assert not server.awaited()
    second.say({"gather": 0, "generation": 1, "value": [2]})
    while not server.awaited():
        pass
    assert server.awaited() == {0}
    assert first.gather(0, [1], never) == [[1], [2]]
    assert second._next(30)["values"] == [[1], [2]]
    assert not server.awaited()


def test_an_agent_has_its_members_before_a_worker_is_told(server: Server, told: Told) -> None:
    """The agent kills workers that are no members, if the launcher dies then: its order must have left by then."""
    secret, addresses = channel.parse(server.listener.variable)
    agent = channel.connect(addresses, secret)
    agent.send(json.dumps({"agent": "here", "number": 1}).encode())
    assert told.next() == HostCame("here")
    for _ in range(100):
        server.send(("here", 1), {"members": [0]})
        server.flush([("here", 1), ("of no host", 2)])
        agent.connection.setblocking(False)
        assert agent.connection.recv(1, socket.MSG_PEEK), "flush() has returned before the message was there"
        agent.connection.setblocking(True)
        assert json.loads(agent.receive()) == {"members": [0]}
    agent.close()


def test_an_early_worker_asks_for_its_place(server: Server, told: Told) -> None:
    new = Coordinator(server.listener.variable, 3)
    MADE.append(new)
    place = Place(2, 3, 0, 2, 0, 1)
    with ThreadPoolExecutor() as pool:
        for answer in (place, None):
            asked = pool.submit(new.ask)
            assert told.next() == Early(3)
            server.answer(Answer(3, answer))
            assert asked.result(30) == answer
    new.comes = True
    assert new.ask() is None, "in run() it need not ask"


def test_a_loss_is_told_to_those_who_wait_and_to_those_who_come(server: Server, told: Told) -> None:
    first, second, third = workers(server, told, 3)
    first.say({"gather": 0, "generation": 1, "value": 1})
    second.leave()
    assert told.next() == Leaving(1)
    while not server._exchanges.values:
        pass
    server.void(1, "rank 2 was lost")
    assert first._next(30) == {"void": 1, "why": "rank 2 was lost"}
    with pytest.raises(hpccoll.MembersChangedError, match="generation 1 has ended: rank 2 was lost"):
        third.gather(0, 3, never)


def test_the_end_of_a_connection(server: Server, told: Told) -> None:
    (only,) = workers(server, told, 1)
    MADE.clear()
    only._channel.connection.shutdown(socket.SHUT_RDWR)
    assert told.next() == Cut(0)
    with pytest.raises(hpccoll.StartError, match="the launcher of the job is gone"):
        only.come()


def test_strangers_are_refused(server: Server, told: Told) -> None:
    _, addresses = channel.parse(server.listener.variable)
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"\xff" * 72 + json.dumps({"worker": 0}).encode()):
        with socket.create_connection(addresses[0], 10) as stranger:
            stranger.sendall(garbage)
    with pytest.raises(OSError, match="does not know the secret"):
        channel.connect(addresses, channel.new_secret())
    workers(server, told, 1)  # told is empty: nothing came of it


def test_a_second_process_with_the_same_number_is_refused(server: Server, told: Told) -> None:
    workers(server, told, 1)
    with pytest.raises(hpccoll.StartError, match="cannot be reached"):
        Coordinator(server.listener.variable, 0)

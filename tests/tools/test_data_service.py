# SPDX-License-Identifier: Apache-2.0
"""The compute service of a data service: what one client tells and another one waits for, over real connections."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hpccoll.tools import data_service
from hpccoll.tools.data_service import ComputeClient, ComputeService, DataServiceError

LONG = 60.0


@pytest.fixture
def service() -> Iterator[ComputeService]:
    with ComputeService(2, 3, nics=["lo"]) as made:
        yield made


@pytest.fixture
def client(service: ComputeService) -> Iterator[Callable[[], ComputeClient]]:
    made = []

    def connect() -> ComputeClient:
        made.append(ComputeClient(service.addresses(), service.key))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def later() -> Iterator[Callable[..., "Future[Any]"]]:
    with ThreadPoolExecutor(8) as threads:
        yield threads.submit


def test_a_dispatcher_and_its_workers_are_waited_for(client: Any, later: Any) -> None:
    addresses = [later(client().wait_for_dispatcher_registration, number, LONG) for number in (0, 1)]
    workers = [later(client().wait_for_dispatcher_worker_registration, number, LONG) for number in (0, 1)]
    tells = client()
    tells.register_dispatcher(1, "grpc://host:1")
    assert addresses[1].result(LONG) == "grpc://host:1"
    for worker in (5, 3, 3):
        tells.register_worker_for_dispatcher(1, worker)
    time.sleep(0.02)
    assert not (addresses[0].done() or workers[0].done() or workers[1].done())
    tells.register_worker_for_dispatcher(1, 4)
    workers[1].result(LONG)
    tells.register_dispatcher(0, "grpc://host:0")
    for worker in (0, 1, 2):
        tells.register_worker_for_dispatcher(0, worker)
    workers[0].result(LONG)
    assert addresses[0].result(LONG) == "grpc://host:0"
    assert tells.local_address == "127.0.0.1"


def test_a_wait_names_what_is_missing(client: Any) -> None:
    one = client()
    with pytest.raises(DataServiceError, match=r"^dispatcher 1 did not register within 0.05 s: look at"):
        one.wait_for_dispatcher_registration(1, 0.05)
    one.register_worker_for_dispatcher(1, 4)
    with pytest.raises(
        DataServiceError, match=r"^worker 3 of dispatcher 1, worker 5 of dispatcher 1 did not register within 0 s"
    ):
        one.wait_for_dispatcher_worker_registration(1, 0)


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_long_wait_is_told(
    service: ComputeService, verbose: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data_service, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(data_service, "REPORT_AFTER", 0.02)
    one = ComputeClient(service.addresses(), service.key, verbose)
    with pytest.raises(DataServiceError):
        one.wait_for_dispatcher_registration(0, 0.1)
    one.close()
    told = capsys.readouterr().err
    assert told.startswith("hpccoll: data service: 0 s have passed, and dispatcher 0 did not register yet") == verbose


def test_a_failure_elsewhere_ends_a_wait(client: Any, later: Any) -> None:
    waits = later(client().wait_for_dispatcher_registration, 0, LONG)
    client().fail("rank 3 of the servers: dispatcher 0 was not started: no port")
    with pytest.raises(DataServiceError, match=r"^rank 3 of the servers: dispatcher 0 was not started: no port$"):
        waits.result(LONG)


def test_a_shutdown_ends_all_waits(service: ComputeService, client: Any, later: Any) -> None:
    until, asks = later(client().wait_for_shutdown), client()
    too = later(client().wait_for_dispatcher_registration, 1, LONG)
    assert asks.is_running(0)
    assert not until.done()
    client().shutdown()
    until.result(LONG)
    assert not asks.is_running()
    with pytest.raises(DataServiceError, match=r"^the compute service was shut down before dispatcher 1 registered$"):
        too.result(LONG)
    service.shutdown()
    service.shutdown()
    asks.wait_for_shutdown()


def test_a_service_that_is_gone_is_named(service: ComputeService) -> None:
    place = f"127.0.0.1 port {service.addresses()['lo'][0][1]}"
    service.shutdown()
    with pytest.raises(DataServiceError, match=f"^the compute service cannot be reached: {place}: .*refused. Does its"):
        ComputeClient(service.addresses(), service.key)


SERVES = """
import sys
from hpccoll.tools.data_service import ComputeService
with ComputeService(1, 1, bytes(range(32)), ["lo"]) as service:
    print(service.addresses()["lo"][0][1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_early_end_of_a_service_is_told(is_killed: bool, later: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", SERVES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        port = int(process.stdout.readline())
        client = ComputeClient({"lo": [("127.0.0.1", port)]}, bytes(range(32)))
        ends = later(client.tell_of_loss)
        if is_killed:
            process.kill()
        process.stdin.close()
        ends.result(LONG)
    client.close()
    expected = f"hpccoll: data service: the compute service at 127.0.0.1 port {port} has ended: "
    assert capsys.readouterr().err[: len(expected)] == (expected if is_killed else "")


def test_another_key_is_refused(service: ComputeService) -> None:
    with pytest.raises(DataServiceError, match="does not know the secret"):
        ComputeClient(service.addresses(), bytes(32))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.register_dispatcher(2, "a"), "there is no dispatcher 2: the service has 2"),
        (lambda one: one.wait_for_dispatcher_registration(-1, 1), "there is no dispatcher -1"),
        (lambda one: one.wait_for_dispatcher_worker_registration(2, 1), "there is no dispatcher 2"),
        (lambda one: one.register_worker_for_dispatcher(1, 2), "dispatcher 1 has no worker 2, but 3 to 5"),
    ],
)
def test_a_wrong_number_is_an_error(client: Any, call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        call(client())


def test_a_service_without_servers_or_interface_is_refused() -> None:
    for numbers, name in (((0, 1), "dispatchers=0"), ((1, 0), "workers_per_dispatcher=0")):
        with pytest.raises(ValueError, match=f"^{name}: it is at least 1"):
            ComputeService(*numbers)
    with pytest.raises(ValueError, match=r"^this machine has no interface 'ib7' with an IPv4 address; it has .*lo$"):
        ComputeService(1, 1, nics=["ib7"])


def test_all_interfaces_are_listened_on_and_loopback_is_last() -> None:
    before = threading.active_count()
    with ComputeService(1, 1) as service:
        places = service.addresses()
        assert list(places)[-1] == "lo"
        for some in places.values():
            ComputeClient({"": some}, service.key).close()
    end = time.monotonic() + LONG
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_bridge_of_containers_is_no_way_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same address on all machines."""
    found = [
        {"name": name, "address": address, "bridge": name == "docker0", "up": name != "eth1"}
        for name, address in (
            ("lo", "127.0.0.1"),
            ("docker0", "127.0.0.2"),
            ("eth1", "127.0.0.3"),
            ("eth0", "127.0.0.4"),
        )
    ]
    monkeypatch.setattr(data_service, "interfaces", lambda: found)
    with ComputeService(1, 1) as service:
        assert list(service.addresses()) == ["eth0", "eth1", "docker0", "lo"]

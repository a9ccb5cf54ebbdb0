# SPDX-License-Identifier: Apache-2.0
"""Where the servers of a data service and the jobs that use it find each other: ComputeService and ComputeClient.

Dispatchers and workers serve elements of a data set; they run in one job, and the training that reads the elements in
another one. The service keeps what both jobs tell: the addresses of dispatchers, which workers are ready, whether a
server could not be started, and that the servers shall end. It is the key-value store of hpccoll.tools.launch.direct,
over authenticated connections. hpccoll.tensorflow.data starts the servers of tf.data.
"""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from hpccoll import channel, errors
from hpccoll.net.interfaces import interfaces
from hpccoll.tools.launch.direct.store import StoreServer
from hpccoll.tools.launch.listener import LOOPBACK

__all__ = ["ComputeClient", "ComputeService", "DataServiceError", "address_of"]

LOOK_EVERY = 1.0
"""Seconds between two looks for a failure elsewhere, while a client waits."""
REPORT_AFTER = 10.0
"""Seconds of a wait before a line tells it, and between two lines."""
SILENT = 30.0
"""Seconds after which a service that does not answer counts as lost."""
SHAPE, FAILED, SHUTDOWN = "shape", "failed", "shutdown"
Addresses = Mapping[str, Sequence[tuple[str, int]]]


class DataServiceError(errors.HpccollError, RuntimeError):
    """A data service could not be started or found. The text names the server, its rank and the reason."""


class _ServiceEndedError(DataServiceError):
    """The process of the service has ended, or is not reachable any more."""


class _Shape(NamedTuple):
    dispatchers: int
    workers_per_dispatcher: int


class ComputeService:
    """Answers the clients of one data service, in threads of this process, until `shutdown()`; also a context."""

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes = b"", nics: Sequence[str] | None = None
    ) -> None:
        """Begin to answer.

        :param dispatchers: how many dispatchers the service has
        :param workers_per_dispatcher: how many workers each of them has
        :param key: 32 bytes that only the processes of the service know; b"": new ones, see `key`
        :param nics: interfaces of this machine on which to listen; None: all
        :raises ValueError: a number is less than 1, or this machine has no such interface
        """
        for name, number in (("dispatchers", dispatchers), ("workers_per_dispatcher", workers_per_dispatcher)):
            if number < 1:
                raise errors.InvalidArgumentError(f"{name}={number}: it is at least 1")
        self.key = key or bytes.fromhex(channel.new_secret())
        places = {nic: address_of(nic) for nic in nics} if nics else _own_addresses()
        server = StoreServer(places.values(), self.key.hex())
        self._listener = server.listener
        self._addresses = {nic: [at] for nic, at in zip(places, self._listener.addresses, strict=True)}
        self._listener.__enter__()
        self._running = True
        self._client = ComputeClient(self._addresses, self.key)
        self._client.set(SHAPE, _Shape(dispatchers, workers_per_dispatcher))

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses and ports by interface; bridges and loopback are last."""
        return self._addresses

    def shutdown(self) -> None:
        """Tell all clients that the servers shall end, and stop to listen; a second call does nothing."""
        if self._running:
            self._running = False
            self._client.shutdown()
            self._client.close()
            self._listener.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class ComputeClient:
    """A connection to a ComputeService. Threads take turns, so a thread that waits needs a client of its own."""

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        """Connect to the first address that answers.

        :param compute_addresses: see ComputeService.addresses
        :param key: that of the service
        :param verbose: 0: no lines about waits that take long
        :raises DataServiceError: no address answers, or the service has another key
        """
        self._verbose = verbose
        self._turn = threading.Lock()
        places = [(host, port) for some in compute_addresses.values() for host, port in some]
        self._where = " or ".join(f"{host} port {port}" for host, port in places)
        try:
            self._channel = channel.connect(places, key.hex())
        except (OSError, channel.ChannelError) as error:
            raise _ServiceEndedError(f"the compute service cannot be reached: {error}. Does its job run?") from None
        self.local_address: str = self._channel.connection.getsockname()[0]
        """The address of this machine on the way to the service."""

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Tell all that a dispatcher is ready.

        :param dispatcher_id: its number, from 0
        :param dispatcher_address: as grpc://HOST:PORT
        """
        self.set(self._dispatcher(dispatcher_id), dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Wait for a dispatcher.

        :param timeout: seconds
        :returns: its address
        :raises DataServiceError: it was not ready in time, some server could not be started, or the service has ended
        """
        key = self._dispatcher(dispatcher_id)
        self._wait({key: f"dispatcher {dispatcher_id}"}, timeout)
        return str(self._get(key))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Tell all that a worker is ready.

        :param worker_id: its number among all workers; each dispatcher has as many as follow one another
        """
        if worker_id not in (those := self._workers(dispatcher_id)):
            text = f"{those[0]} to {those[-1]}"
            raise errors.InvalidArgumentError(f"dispatcher {dispatcher_id} has no worker {worker_id}, but {text}")
        self.set(f"worker/{worker_id}", "")

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Wait for all workers of a dispatcher; see wait_for_dispatcher_registration."""
        workers = self._workers(dispatcher_id)
        self._wait(
            {f"worker/{worker}": f"worker {worker} of dispatcher {dispatcher_id}" for worker in workers}, timeout
        )

    def fail(self, problem: str) -> None:
        """Tell all that a server could not be started; their waits end with this text."""
        self.set(FAILED, problem)

    def shutdown(self) -> None:
        """Tell all that the servers shall end."""
        self.set(SHUTDOWN, "")

    def wait_for_shutdown(self) -> None:
        """Return when the servers shall end: after `shutdown()` of anybody, or when the service has ended."""
        while self.is_running():
            pass

    def is_running(self, seconds: float = LOOK_EVERY) -> bool:
        """Whether the servers shall go on; waits for up to some seconds for the call of `shutdown()`."""
        try:
            return not self._there([SHUTDOWN], seconds)
        except _ServiceEndedError:
            return False

    def tell_of_loss(self) -> None:
        """Return when the servers shall end; print a line if the service has ended before, for which nobody asks."""
        try:
            while not self._there([SHUTDOWN], REPORT_AFTER):
                pass
        except _ServiceEndedError as error:
            text = f"{error}. What waits for elements of its servers may wait for ever"
            print(f"hpccoll: data service: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def set(self, key: str, value: Any) -> None:
        """Set a value that all clients see."""
        self._ask({"set": key, "value": json.dumps(value)})

    def _get(self, key: str) -> Any:
        value = self._ask({"get": key})
        return None if value is None else json.loads(value)

    def _there(self, keys: list[str], seconds: float) -> bool:
        return bool(self._ask({"check": keys, "seconds": seconds}, seconds))

    def _wait(self, keys: Mapping[str, str], timeout: float) -> None:
        """Wait for keys, whose values say for people what they are."""
        began, told = time.monotonic(), 0.0
        while not self._there(list(keys), max(0.0, min(LOOK_EVERY, began + timeout - time.monotonic()))):
            if problem := self._get(FAILED):
                raise DataServiceError(str(problem))
            if not self.is_running(0):
                raise _ServiceEndedError(f"the compute service was shut down before {self._late(keys)} registered")
            waited = time.monotonic() - began
            if waited >= timeout:
                raise DataServiceError(
                    f"{self._late(keys)} did not register within {timeout:g} s: look at what that job prints, or "
                    "increase the timeout"
                )
            if self._verbose and waited - told >= REPORT_AFTER:
                told = waited
                text = f"{waited:.0f} s have passed, and {self._late(keys)} did not register yet"
                print(f"hpccoll: data service: {text}", file=sys.stderr, flush=True)

    def _late(self, keys: Mapping[str, str]) -> str:
        late = [what for key, what in keys.items() if not self._there([key], 0)]
        return ", ".join(late[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")

    def _dispatcher(self, number: int) -> str:
        shape = self._shape()
        if not 0 <= number < shape.dispatchers:
            raise errors.InvalidArgumentError(
                f"there is no dispatcher {number}: the service has {shape.dispatchers}, which count from 0"
            )
        return f"dispatcher/{number}"

    def _workers(self, dispatcher: int) -> range:
        self._dispatcher(dispatcher)
        count = self._shape().workers_per_dispatcher
        return range(dispatcher * count, (dispatcher + 1) * count)

    def _shape(self) -> _Shape:
        return _Shape(*self._get(SHAPE))

    def _ask(self, question: Mapping[str, Any], seconds: float = 0.0) -> Any:
        with self._turn:
            try:
                self._channel.connection.settimeout(seconds + SILENT)
                self._channel.send(json.dumps(question).encode())
                return json.loads(self._channel.receive())
            except (OSError, channel.ChannelError) as error:
                raise _ServiceEndedError(f"the compute service at {self._where} has ended: {error}") from None


def address_of(nic: str) -> str:
    """Return the address of an interface of this machine.

    :raises ValueError: there is no interface of this name with an IPv4 address; the text lists those that there are
    """
    addresses = _own_addresses()
    if nic not in addresses:
        raise errors.InvalidArgumentError(
            f"this machine has no interface {nic!r} with an IPv4 address; it has {', '.join(addresses)}"
        )
    return addresses[nic]


def _own_addresses() -> dict[str, str]:
    """Return the addresses by interface, in the order in which clients try them: bridges lead to no other machine."""
    devices = sorted(interfaces(), key=lambda one: (one["address"] == LOOPBACK, one["bridge"], not one["up"]))
    return {device["name"]: device["address"] for device in devices}

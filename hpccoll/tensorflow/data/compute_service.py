# SPDX-License-Identifier: Apache-2.0
"""What Horovod's horovod.tensorflow.data.compute_service has: the tf.data service for the ranks of a job.

>>> from hpccoll.tensorflow.data.compute_service import TfDataServiceConfig
>>> config = TfDataServiceConfig.read("compute.json", wait_for_file_creation=True)
>>> dataset = dataset.batch(128).send_to_data_service(config, hvd.rank(), hvd.size())

`hpccoll run -np 4 python -m hpccoll.tensorflow.data.compute_worker compute.json` starts the servers. Both jobs find
each other by the ComputeService on rank 0 of that job; the servers are those of tf.data.experimental.service.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll import durable
from hpccoll.errors import InvalidArgumentError
from hpccoll.text import say
from hpccoll.tools.data_service import ComputeClient, ComputeService, DataServiceError, address_of

__all__ = [
    "ComputeClient", "ComputeService", "DataServiceError", "TfDataServiceConfig", "compute_worker_fn", "on_all_ranks",
    "send_to_data_service", "tf_data_service",
]  # fmt: skip

T = TypeVar("T")
SIDES = ("compute", "training")
READ_AGAIN = 0.2
"""Seconds between two looks for a file."""
TELL_AFTER = 10.0
HEARTBEAT = 1000
"""Milliseconds; Horovod's."""
_ENTERED: set[bytes] = set()
"""The keys of services with dispatchers on the training side that this process has used."""
_WATCHED: set[bytes] = set()
"""The keys of services whose end a thread of this process would tell."""
_REUSED: Counter[bytes] = Counter()
"""For each service, by its key, how many of its data sets this process has shared with other ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfDataServiceConfig:
    """A tf.data service: its servers, and where its processes find each other. It is secret, because of the key."""

    dispatchers: int
    """One for all ranks of the training, or one for each of them."""
    dispatchers_work_dir: str | None = None
    """A folder, in which dispatchers keep what they need after a restart (TensorFlow's fault tolerant mode)."""
    dispatchers_nic: str | None = None
    """The interface of the servers; None: the one that leads to the compute service."""
    workers_per_dispatcher: int
    dispatcher_side: str
    """The job that has the dispatchers: "compute" or "training"."""
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    """Those of the ComputeService."""
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60
    """Seconds that servers have to be there."""

    def __post_init__(self) -> None:
        if self.dispatcher_side not in SIDES:
            raise InvalidArgumentError(f"dispatcher_side={self.dispatcher_side!r} is neither 'compute' nor 'training'")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Connect to the ComputeService.

        :param verbose: 0: no lines about waits that take long
        :raises DataServiceError: it cannot be reached
        """
        return ComputeClient(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON has them."""
        return {**dataclasses.asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Undo `to_dict`."""
        addresses = {nic: [(host, port) for host, port in places] for nic, places in config["addresses"].items()}
        return TfDataServiceConfig(**{**config, "key": bytes.fromhex(config["key"]), "addresses": addresses})

    def write(self, filename: str) -> None:
        """Write a file that its owner alone can read; it is complete or not there.

        :raises OSError: the file cannot be written
        """
        durable.check(Path(filename))  # names the folder, and `replacing` a file in it
        with durable.replacing(Path(filename), lasting=False) as fresh:
            fresh.touch(mode=0o600)
            fresh.write_text(json.dumps(self.to_dict()), encoding="utf-8")

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False, timeout: float = 600.0) -> TfDataServiceConfig:
        """Read a file of `write`.

        :param wait_for_file_creation: wait until there is such a file; after 10 s a line says so
        :param timeout: for how many seconds
        :raises OSError: the file cannot be read; after the timeout a TimeoutError
        :raises ValueError: it is no file of `write`
        """
        path, began, told = Path(filename), time.monotonic(), False
        while wait_for_file_creation and not path.exists():
            waited = time.monotonic() - began
            if waited > timeout:
                raise TimeoutError(f"{filename} was not there within {timeout:g} s: compute_worker writes it")
            if waited > TELL_AFTER and not told:
                told = True
                say(f"hpccoll: data service: waits for the file {filename}")
            time.sleep(READ_AGAIN)
        try:
            return TfDataServiceConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(f"{filename} is no file of compute_worker: {error!r}") from None


@contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Give a rank of the training the address of its dispatcher, when its workers are ready; a context.

    With `dispatcher_side="training"` rank 0, or each rank if there are several dispatchers, starts the dispatcher. It
    ends with the context, so ranks that share a dispatcher leave the context together.

    >>> with tf_data_service(config, hvd.rank()) as address:
    ...     dataset = dataset.apply(tf.data.experimental.service.distribute("distributed_epoch", address))

    :param compute_config: the service
    :param rank: of this process in the training
    :returns: the address, as grpc://HOST:PORT
    :raises DataServiceError: a server was not there within `compute_config.timeout`, or could not be started; the
        dispatchers are on the training side, and this process has had its context
    :raises ValueError: there are several dispatchers, and none for this rank
    """
    several = compute_config.dispatchers > 1
    if several and rank >= compute_config.dispatchers:
        raise InvalidArgumentError(
            f"rank {rank} of the training has no dispatcher: the service has {compute_config.dispatchers}. Start it "
            f"with --dispatchers 1, or with one for each rank of the training"
        )
    number = rank if several else 0
    if compute_config.dispatcher_side == "training":
        if compute_config.key in _ENTERED:
            raise DataServiceError(
                "a dispatcher on the training side ends with its context, and its workers know no other one: use one "
                "context for all data sets, or dispatchers on the compute side"
            )
        _ENTERED.add(compute_config.key)
    with ExitStack() as stack:
        client = compute_config.compute_client(verbose=2)
        stack.callback(client.close)
        if compute_config.dispatcher_side == "training" and number == rank:
            try:
                _start_dispatcher(compute_config, number, client, stack)
            except Exception as error:
                client.fail(f"rank {rank} of the training: dispatcher {number} was not started: {_text_of(error)}")
                raise
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        _watch(compute_config)
        yield address


def _watch(config: TfDataServiceConfig) -> None:
    """Tell if the servers' job ends too early: tf.data tries to reach its servers again, without a word."""
    if config.key not in _WATCHED:
        _WATCHED.add(config.key)
        watches = config.compute_client().tell_of_loss
        threading.Thread(target=watches, name="hpccoll data service", daemon=True).start()


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Let the service make the elements of a data set; also a method of tf.data.Dataset.

    :param dataset: a tf.data.Dataset
    :param compute_config: the service, with dispatchers on the compute side
    :param rank: of this process in the training
    :param size: the number of ranks of the training, for `round_robin`
    :param processing_mode: "distributed_epoch": the workers of a dispatcher share the elements, so that each of them is
        there once; "parallel_epochs": each worker has all of them
    :param reuse_dataset: the ranks with the same dispatcher share the elements, and call this function for the same
        data sets in the same order; False: each rank has all elements
    :param round_robin: the ranks get elements in turn, of a data set without end; with `reuse_dataset`
    :returns: the data set of what the service sends
    :raises RuntimeError: the dispatchers are on the training side: use tf_data_service
    :raises DataServiceError: see tf_data_service
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "dispatchers on the training side end with a context: use `with tf_data_service(config, rank)`"
        )
    shared: dict[str, Any] = {}
    if reuse_dataset:
        count = _REUSED[compute_config.key]
        _REUSED[compute_config.key] += 1
        shared["job_name"] = f"job-{count}" if count else "job"  # under one name the next data set would be empty
    if reuse_dataset and round_robin:
        shared |= {"consumer_index": rank, "num_consumers": size}
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(tf.data.experimental.service.distribute(processing_mode, address, **shared))


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Run the servers of this rank until the service is shut down: a worker, and on some ranks a dispatcher.

    All ranks of a job of `dispatchers * workers_per_dispatcher` ranks call it.

    :param compute_config: the service, the same on all ranks
    :raises DataServiceError: the servers of some rank could not be started; on all ranks, and it names the rank
    :raises ValueError: the job has another number of ranks
    """
    hvd.init()
    index, per_dispatcher = hvd.rank(), compute_config.workers_per_dispatcher
    number = index // per_dispatcher
    if hvd.size() != compute_config.dispatchers * per_dispatcher:
        raise InvalidArgumentError(
            f"{compute_config.dispatchers} dispatchers with {per_dispatcher} workers each: the job needs a rank per "
            f"worker, and has {hvd.size()}"
        )
    with ExitStack() as stack:
        client = on_all_ranks("the compute service", compute_config.compute_client)
        stack.callback(client.close)
        dispatches = compute_config.dispatcher_side == "compute" and index % per_dispatcher == 0
        on_all_ranks(
            f"dispatcher {number}",
            lambda: _start_dispatcher(compute_config, number, client, stack) if dispatches else None, client,
        )  # fmt: skip
        on_all_ranks(f"worker {index}", lambda: _start_worker(compute_config, index, client, stack), client)
        client.wait_for_shutdown()


def on_all_ranks(what: str, start: Callable[[], T], client: ComputeClient | None = None) -> T:
    """Call a function on all ranks; if it raises on one, raise on all.

    :param what: what it starts, for the text
    :param start: the function of this rank
    :param client: tells the training, too
    :returns: what the function returned
    :raises DataServiceError: it raised on some rank; names each of these ranks, and the reason
    """
    result, problem = None, ""
    try:
        result = start()
    except Exception as error:  # noqa: BLE001 - raised below, on all ranks
        problem = f"rank {hvd.rank()} of the servers: {what} was not started: {_text_of(error)}"
        with suppress(DataServiceError):
            if client is not None:
                client.fail(problem)
    problems = "; ".join(filter(None, hvd.allgather_object(problem, name="data_service.started")))
    if not problems:
        return result  # type: ignore[return-value]
    raise DataServiceError(problems)


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, DataServiceError) else f"{type(error).__name__}: {error}"


def _start_dispatcher(config: TfDataServiceConfig, number: int, client: ComputeClient, stack: ExitStack) -> None:
    """Start a dispatcher, which ends with the stack, and tell its address."""
    address = address_of(config.dispatchers_nic) if config.dispatchers_nic else client.local_address
    folder = config.dispatchers_work_dir and str(Path(config.dispatchers_work_dir).resolve() / f"dispatcher-{number}")
    server = tf.data.experimental.service.DispatchServer(
        tf.data.experimental.service.DispatcherConfig(work_dir=folder, fault_tolerant_mode=bool(folder))
    )
    stack.callback(_stop, server)
    protocol, _, local = server.target.partition("://")  # names localhost
    client.register_dispatcher(number, f"{protocol}://{address}:{local.rpartition(':')[2]}")


def _start_worker(config: TfDataServiceConfig, index: int, client: ComputeClient, stack: ExitStack) -> None:
    """Start a worker, which ends with the stack, and tell that it is ready."""
    number = index // config.workers_per_dispatcher
    protocol, _, dispatcher = client.wait_for_dispatcher_registration(number, config.timeout).partition("://")
    address = address_of(config.dispatchers_nic) if config.dispatchers_nic else client.local_address
    server = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=dispatcher,
            protocol=protocol,
            worker_address=f"{address}:%port%",
            heartbeat_interval_ms=HEARTBEAT,
            dispatcher_timeout_ms=config.timeout * 1000,
        )
    )
    stack.callback(_stop, server)
    client.register_worker_for_dispatcher(number, index)


def _stop(server: Any) -> None:
    server._stop()  # noqa: SLF001 - tf.data has no other way
    server.join()

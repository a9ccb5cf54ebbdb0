"""The tf.data service beside the ranks: servers and training in one job, a thread for the servers.

One rank of a job of test_jobs.py. What each rank gets is what TensorFlow documents: with "distributed_epoch" the
workers of a dispatcher share the elements, with "parallel_epochs" each of them has all; under one job name the
consumers of a dispatcher share what comes.
"""

import dataclasses
import re
import sys
import threading
from collections import Counter
from pathlib import Path

import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll.tensorflow.data.compute_service import (
    ComputeService,
    DataServiceError,
    TfDataServiceConfig,
    compute_worker_fn,
    tf_data_service,
)
from hpccoll.tensorflow.data.compute_worker import main

folder = Path(sys.argv[1])
hvd.init()
rank, size = hvd.rank(), hvd.size()
NUMBER, BATCH = 60, 4
LIMIT = 60


class Servers:
    """`main` in a thread of this rank; a context that gives the config, and ends with the servers."""

    def __init__(self, name, dispatchers, side, work_dir=None):
        self.file = folder / f"{name}.json"
        arguments = (dispatchers, work_dir, "lo", side, str(self.file), LIMIT)
        self.thread = threading.Thread(target=main, args=arguments, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.config = TfDataServiceConfig.read(str(self.file), wait_for_file_creation=True)
        return self.config

    def __exit__(self, kind, error, traceback):
        if kind is None:
            hvd.barrier()  # all have read
            if rank == 0:
                assert self.file.stat().st_mode & 0o777 == 0o600
                self.config.compute_client().shutdown()
            self.thread.join(LIMIT)
            assert not self.thread.is_alive()
            hvd.barrier()
            assert not self.file.exists()


def elements(dataset):
    return [int(one) for batch in dataset.as_numpy_iterator() for one in batch]


def check_what_ranks_get():
    for dispatchers in (1, size):
        for side in ("compute", "training"):
            work_dir = folder / f"{dispatchers}-{side}"
            with Servers(work_dir.name, dispatchers, side, str(work_dir)) as config:
                if side == "compute":
                    modes(config, lambda *how: sent(config, *how))
                    continue
                with tf_data_service(config, rank) as address:
                    modes(config, lambda *how: applied(address, *how))
                    hvd.barrier()
                assert "use one context" in raised(lambda: tf_data_service(config, rank).__enter__())
            assert (work_dir / "dispatcher-0").is_dir()


def modes(config, distributed):
    for mode, copies in (("distributed_epoch", 1), ("parallel_epochs", config.workers_per_dispatcher)):
        for shared in (False, True):
            got = hvd.allgather_object(Counter(elements(distributed(mode, shared))))
            if shared and config.dispatchers == 1:
                got = [sum(got, Counter())]
            assert all(one == dict.fromkeys(range(NUMBER), copies) for one in got), (config, mode, shared, got)


def sent(config, mode, shared):
    dataset = tf.data.Dataset.range(NUMBER).batch(BATCH)
    return dataset.send_to_data_service(config, rank, size, mode, reuse_dataset=shared)


def applied(address, mode, shared):
    job = {"job_name": mode} if shared else {}
    return (
        tf.data.Dataset.range(NUMBER).batch(BATCH).apply(tf.data.experimental.service.distribute(mode, address, **job))
    )


def check_round_robin():
    """Ranks take turns: the k-th batches of all ranks come from one worker, so they follow one another there."""
    with Servers("turns", 1, "compute") as config:
        dataset = tf.data.Dataset.range(10**6).repeat().batch(BATCH)
        sent = dataset.send_to_data_service(config, rank, size, "parallel_epochs", reuse_dataset=True, round_robin=True)
        rounds = hvd.allgather_object([int(batch[0]) for batch in sent.take(8).as_numpy_iterator()])
        for firsts in zip(*rounds, strict=True):
            assert sorted(firsts) == list(range(min(firsts), min(firsts) + BATCH * size, BATCH)), rounds


def raised(call):
    try:
        call()
    except (DataServiceError, ValueError, RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def served(dispatchers=1, side="compute", **more):
    """A service of rank 0, and its config, the same on all ranks."""
    service = ComputeService(dispatchers, size // dispatchers, nics=["lo"]) if rank == 0 else None
    made = service and TfDataServiceConfig(
        dispatchers=dispatchers, workers_per_dispatcher=size // dispatchers, dispatcher_side=side,
        addresses=service.addresses(), key=service.key, timeout=20, **more,
    )  # fmt: skip
    return service, hvd.broadcast_object(made, 0)


def check_a_server_that_cannot_start_is_named():
    """On all ranks, and by the training."""
    a_file = folder / "a file"
    a_file.touch()
    named(
        "rank 0 of the servers: dispatcher 0 was not started: .*a file", *served(dispatchers_work_dir=str(a_file)), {}
    )
    named(
        "rank 1 of the servers: worker 1 was not started: .*no interface 'ib7'", *served(), {"dispatchers_nic": "ib7"}
    )


def named(words, service, config, of_rank_1):
    training = []
    thread = threading.Thread(
        target=lambda: training.append(raised(lambda: tf_data_service(config, rank).__enter__())), daemon=True
    )
    thread.start()
    servers = raised(lambda: compute_worker_fn(dataclasses.replace(config, **(of_rank_1 if rank == 1 else {}))))
    thread.join(LIMIT)
    for text in (servers, *training):
        assert re.match(f"DataServiceError: {words}", text), text
    assert len(training) == 1
    assert len(set(hvd.allgather_object(servers))) == 1
    hvd.barrier()
    if service:
        service.shutdown()


def check_a_dispatcher_of_the_training_that_cannot_start_is_named():
    service, config = served(side="training", dispatchers_work_dir=str(folder / "a file"))
    thread = threading.Thread(target=lambda: servers.append(raised(lambda: compute_worker_fn(config))), daemon=True)
    servers = []
    thread.start()
    training = raised(lambda: tf_data_service(config, rank).__enter__())
    thread.join(LIMIT)
    assert ("DataServiceError: rank 0 of the training: " if rank else "RuntimeError: ") in training, training
    assert "rank 0 of the training: dispatcher 0 was not started: " in servers[0], servers
    hvd.barrier()
    if service:
        service.shutdown()


def check_wrong_calls():
    service, config = served(size)
    assert "needs a rank per" in raised(lambda: compute_worker_fn(dataclasses.replace(config, dispatchers=size + 1)))
    assert f"rank {size} of the training has no dispatcher" in raised(lambda: tf_data_service(config, size).__enter__())
    training = dataclasses.replace(config, dispatcher_side="training")
    dataset = tf.data.Dataset.range(3)
    assert "use `with tf_data_service" in raised(lambda: dataset.send_to_data_service(training, rank))
    assert "neither 'compute' nor 'training'" in raised(lambda: dataclasses.replace(config, dispatcher_side="both"))
    assert "no multiple of" in raised(lambda: main(size + 1, None, None, "compute", "x.json", 1))
    nowhere = str(folder / "nowhere" / "x.json")
    text = raised(lambda: main(1, None, None, "compute", nowhere, 1))
    assert text.startswith("DataServiceError: rank 0 of the servers: the compute service was not started: FileNotFound")
    missing = raised(lambda: TfDataServiceConfig.read(nowhere, wait_for_file_creation=True, timeout=0.01))
    assert missing.startswith(f"TimeoutError: {nowhere} was not there within 0.01 s"), missing
    other = folder / f"other-{rank}.json"
    other.write_text('{"key": 3}')
    assert "is no file of compute_worker" in raised(lambda: TfDataServiceConfig.read(str(other)))
    config.write(str(other))
    assert TfDataServiceConfig.read(str(other)) == config
    assert config.key.hex() not in repr(config)
    hvd.barrier()
    if service:
        service.shutdown()


for check in [value for name, value in dict(globals()).items() if name.startswith("check_")]:
    check()
    print(f"rank {rank}: {check.__name__} passed", flush=True)
hvd.shutdown()

# SPDX-License-Identifier: Apache-2.0
"""What Horovod's horovod.tensorflow.data.compute_worker is: the servers of a tf.data service, one worker per rank.

    hpccoll run -np 4 python -m hpccoll.tensorflow.data.compute_worker compute.json --dispatchers 2

The training reads the file and finds the servers. They end when it calls `config.compute_client().shutdown()`.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import hpccoll.tensorflow as hvd
from hpccoll.errors import InvalidArgumentError
from hpccoll.tensorflow.data.compute_service import (
    SIDES,
    ComputeService,
    DataServiceError,
    TfDataServiceConfig,
    compute_worker_fn,
    on_all_ranks,
)

__all__ = ["main"]


def main(
    dispatchers: int,
    dispatchers_work_dir: str | None,
    dispatchers_nic: str | None,
    dispatcher_side: str,
    configfile: str,
    timeout: int,
) -> None:
    """Run the servers of this rank until the training shuts the service down; all ranks of the job call it.

    :param dispatchers: how many dispatchers there are; the ranks are shared out among them
    :param dispatchers_work_dir: see TfDataServiceConfig, as are the nic and the side
    :param configfile: what rank 0 writes for the training, and removes at the end
    :param timeout: seconds that servers have to be there
    :raises DataServiceError: the servers of some rank could not be started; on all ranks, and it names the rank
    :raises ValueError: the number of ranks is no multiple of `dispatchers`, or the side is wrong
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if dispatchers < 1 or size % dispatchers:
        raise InvalidArgumentError(f"{size} ranks are no multiple of {dispatchers} dispatchers")
    if dispatcher_side not in SIDES:
        raise InvalidArgumentError(f"dispatcher_side={dispatcher_side!r} is neither 'compute' nor 'training'")
    workers = size // dispatchers

    with contextlib.ExitStack() as stack:

        def serve() -> TfDataServiceConfig | None:
            if rank:
                return None
            service = stack.enter_context(ComputeService(dispatchers, workers))
            config = TfDataServiceConfig(
                dispatchers=dispatchers,
                dispatchers_work_dir=dispatchers_work_dir,
                dispatchers_nic=dispatchers_nic,
                workers_per_dispatcher=workers,
                dispatcher_side=dispatcher_side,
                addresses=service.addresses(),
                key=service.key,
                timeout=timeout,
            )
            config.write(configfile)
            stack.callback(_remove, configfile, config)
            return config

        mine = on_all_ranks("the compute service", serve)
        compute_worker_fn(hvd.broadcast_object(mine, 0, name="data_service.config"))


def _remove(configfile: str, config: TfDataServiceConfig) -> None:
    """Remove the file, unless a later service has replaced it."""
    with contextlib.suppress(OSError, ValueError):
        if TfDataServiceConfig.read(configfile) == config:
            Path(configfile).unlink()


def _command() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hpccoll.tensorflow.data.compute_worker",
        description="Run the servers of a tf.data service, one worker per rank of a job, until the training ends it.",
    )
    add = parser.add_argument
    add("configfile", help="the file that rank 0 writes for the training; secret")
    add("--dispatchers", type=int, default=1, help="one for all ranks of the training, or one for each of them")
    add("--dispatchers-work-dir", help="a folder for TensorFlow's fault tolerant mode of the dispatchers")
    add("--dispatchers-nic", help="the interface of the servers; the one that leads to rank 0")
    add("--dispatcher-side", default="compute", choices=SIDES, help="the job that has the dispatchers")
    add("--timeout", type=int, default=60, help="seconds that servers have to be there (60)")
    given = parser.parse_args()
    try:
        main(**vars(given))
    except (DataServiceError, InvalidArgumentError) as error:
        if hvd.rank() == 0:  # all ranks have it
            print(f"compute_worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_command())

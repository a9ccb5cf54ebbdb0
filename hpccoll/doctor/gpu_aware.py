# SPDX-License-Identifier: Apache-2.0
"""Whether MPI can send from and to device memory: tried, in a job step of its own, as a wrong answer is a crash.

A library that was not built for it follows the device address in host memory and dies, or returns sums of garbage;
what it says of itself (MPIX_Query_cuda_support) is no proof. So real numbers travel and are compared.
"""

from __future__ import annotations

import numpy as np

from hpccoll.checks.finding import Facts
from hpccoll.doctor.cuda_driver import Driver, DriverError
from hpccoll.doctor.stages import Stages, mpi_world

COUNTS = (1, 1 << 10, 1 << 18)
"""Elements of float32: eager, in between, and rendezvous with registered memory."""


def main() -> None:
    """The report {"proved": bool, "why": text, "device": name} of every rank goes to the watcher."""
    stages = Stages()
    comm = mpi_world(stages)
    stages.begin("opening the GPU")
    driver, why = _open(comm.Get_rank())
    said = comm.allgather(why)
    if any(said):
        rank = next(r for r, text in enumerate(said) if text)
        stages.report({"proved": False, "why": f"no GPU here: rank {rank}: {said[rank]}", "device": ""})
    else:
        assert driver is not None
        stages.report(_prove(comm, driver, stages))
    stages.finish()


def _open(rank: int) -> tuple[Driver | None, str]:
    try:
        driver = Driver()
        if not driver.count():
            return None, "the driver shows no device"
        driver.use(rank % driver.count())
    except DriverError as error:
        return None, str(error)
    return driver, ""


def _prove(comm: object, driver: Driver, stages: Stages) -> Facts:
    """Sum ones and twos and ... over all ranks, and pass them around a ring; compare on the host."""
    from mpi4py import MPI

    world: MPI.Comm = comm  # type: ignore[assignment]
    rank, size = world.Get_rank(), world.Get_size()
    name = driver.describe(rank % driver.count())["name"]
    for count in COUNTS:
        source, target = (driver.allocate(4 * count) for _ in range(2))
        buffers = [[MPI.buffer.fromaddress(a, 4 * count), MPI.FLOAT] for a in (source, target)]
        for what in ("a ring of messages", "an allreduce"):
            stages.begin(f"{what} of {4 * count} bytes in device memory")
            mine, got = np.full(count, rank + 1, np.float32), np.zeros(count, np.float32)
            driver.to_device(source, mine)
            driver.to_device(target, got)
            if what == "an allreduce":
                world.Allreduce(buffers[0], buffers[1], MPI.SUM)
                expected = size * (size + 1) / 2
            else:
                world.Sendrecv(buffers[0], (rank + 1) % size, 0, buffers[1], (rank - 1) % size, 0)
                expected = (rank - 1) % size + 1
            driver.to_host(got, target)
            wrong = int((got != expected).sum())
            if world.allreduce(wrong):
                return {
                    "proved": False,
                    "why": f"{what} of {4 * count} bytes gave wrong values",
                    "device": name,
                }
    return {"proved": True, "why": "", "device": name}


if __name__ == "__main__":
    main()

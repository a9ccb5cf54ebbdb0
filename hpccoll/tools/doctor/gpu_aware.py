# SPDX-License-Identifier: Apache-2.0
"""Tries whether MPI can send from and to device memory, in a separate job step because the trial may crash.

A library that was not built for it reads the device address in host memory and dies, or returns wrong sums. Its own
answer (MPIX_Query_cuda_support) is no proof, so real numbers are sent and compared. The child first reports what it
will try: the verdict (hpccoll/checks/proofs.py) is about that, even if the trial ends the process.
"""

import platform
from typing import Any

import numpy as np

from hpccoll.checks import proofs
from hpccoll.checks.finding import Facts
from hpccoll.tools.doctor.cuda_driver import Driver, DriverError
from hpccoll.tools.doctor.stages import NoMpiError, Stages, mpi_world

COUNTS = (1, 1 << 10, 1 << 18)
"""Elements of float32, for MPI's eager protocol, for medium messages, and for rendezvous with registered memory."""


def main() -> None:
    """Try device memory, and report to the monitor: first "about", unless there is no GPU, then "proved" and "why"."""
    stages = Stages()
    try:
        comm = mpi_world(stages)
    except NoMpiError as reason:
        stages.report({"proved": False, "why": str(reason)})
        return
    stages.begin("opening the GPU")
    driver, why = _open(comm.Get_rank())
    reasons = comm.allgather(why)
    if any(reasons):
        rank = next(r for r, text in enumerate(reasons) if text)
        stages.report({"proved": False, "why": f"no GPU here: rank {rank}: {reasons[rank]}"})
    else:
        assert driver is not None
        about = _about(comm, driver)
        stages.report({"about": about})
        why = _prove(comm, driver, stages)
        stages.report({"about": about, "proved": not why, "why": why})
    stages.finish()


def _about(comm: Any, driver: Driver) -> Facts:
    """Describe what the verdict will be about: GPUs and hosts of all ranks, and the MPI library."""
    from mpi4py import MPI

    name = driver.describe(comm.Get_rank() % driver.count())["name"]
    rows = comm.allgather((f"{name}, CUDA {driver.cuda()}", platform.node()))
    devices, hosts = (list(dict.fromkeys(column)) for column in zip(*rows, strict=True))
    return {
        "devices": devices,
        "hosts": hosts,
        "mpi": proofs.library(MPI.Get_library_version()),
        "ranks": comm.Get_size(),
    }


def _open(rank: int) -> tuple[Driver | None, str]:
    try:
        driver = Driver()
        if not driver.count():
            return None, "the driver shows no device"
        driver.use(rank % driver.count())
    except DriverError as error:
        return None, str(error)
    return driver, ""


def _prove(comm: object, driver: Driver, stages: Stages) -> str:
    """Send arrays of rank + 1 around a ring, sum them over all ranks, and compare the results on the host.

    :returns: what failed, or ""
    """
    from mpi4py import MPI

    world: MPI.Comm = comm  # type: ignore[assignment]
    rank, size = world.Get_rank(), world.Get_size()
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
                return f"{what} of {4 * count} bytes gave wrong values"
    return ""


if __name__ == "__main__":
    main()

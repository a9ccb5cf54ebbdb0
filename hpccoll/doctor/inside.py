# SPDX-License-Identifier: Apache-2.0
"""The child that calls MPI: says before each stage what it will do, so that its watcher knows where it hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
from typing import Any

from hpccoll import config
from hpccoll.checks.finding import Card
from hpccoll.doctor import examine, meetings, mpi


def main() -> None:
    """Read the card and the options from stdin; stages and the report go to the descriptor of the first argument."""
    pipe, stacks = int(sys.argv[1]), int(sys.argv[2])
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    given = json.loads(sys.stdin.readline())

    def tell(**message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(pipe, data) :]

    def stage(name: str) -> None:
        tell(stage=name)

    stage("loading mpi4py and the MPI library")
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    stage("MPI_Init_thread")
    MPI.Init_thread(MPI.THREAD_MULTIPLE)
    comm = MPI.COMM_WORLD
    card = Card(**given["card"])
    card.facts[mpi.NAME] = mpi.collect(dict(config.environment()))
    stage("the first exchange through MPI")
    meeting = meetings.ThroughMpi(comm)
    meeting.allgather(None)
    report = examine.examine(
        meeting, Card(comm.Get_rank(), card.host, card.node, card.facts), given["options"], stage, comm
    )
    tell(report=report)
    stage("MPI_Finalize")
    MPI.Finalize()
    stage("the end")


if __name__ == "__main__":
    main()

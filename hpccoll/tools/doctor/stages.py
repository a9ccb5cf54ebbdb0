# SPDX-License-Identifier: Apache-2.0
"""The child's side of child_monitor.py: a process that names each stage before it begins."""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

from hpccoll import inherited
from hpccoll.checks.finding import Facts
from hpccoll.tools.kin import end_with_parent

LOADING = "loading mpi4py and the MPI library"
LAST = ("MPI_Finalize", "the end")
RETURN_ERRORS = ("OMPI_MCA_mpi_initial_errhandler", "mpi_errors_return")
"""With this Open MPI 5 returns an error of MPI_Init, where it would abort the job, and the reports with it."""


class NoMpiError(Exception):
    """There is no MPI for this Python; the text says why."""


class Stages:
    """The pipe to the monitoring process, from the arguments that child_monitor.run passed.

    SIGUSR1 makes this process write its Python stack into a file of the monitor. It does not outlive the monitor, which
    a launcher may kill.
    """

    def __init__(self) -> None:
        end_with_parent(signal.SIGKILL)
        self.pipe, stacks = int(sys.argv[1]), int(sys.argv[2])
        for descriptor in (self.pipe, stacks):
            os.set_inheritable(descriptor, False)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
        self.given: Facts = json.loads(sys.stdin.readline())

    def begin(self, name: str) -> None:
        """Name the stage that begins now."""
        self._send({"stage": name})

    def report(self, facts: Facts | None) -> None:
        """Send the result."""
        self._send({"report": facts})

    def fail(self, reason: str) -> NoReturn:
        """Send why the stage failed, and wait until the monitor ends this process (child_monitor.run says why)."""
        self._send({"error": reason})
        while True:
            time.sleep(3600)

    def finish(self) -> None:
        """Finalize MPI."""
        from mpi4py import MPI

        self.begin(LAST[0])
        MPI.Finalize()
        self.begin(LAST[1])

    def _send(self, message: Facts) -> None:
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.pipe, data) :]


def mpi_world(stages: Stages) -> Any:
    """Load and start MPI, stage by stage. It does not return if MPI says that it cannot start: see Stages.fail.

    :returns: mpi4py's COMM_WORLD
    :raises NoMpiError: there is no mpi4py, or no MPI library that it can load
    """
    stages.begin(LOADING)
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NoMpiError(str(error)) from None

    stages.begin("MPI_Init_thread")
    name, value = RETURN_ERRORS
    inherited.publish(name, inherited.environment().get(name, value))
    try:
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    except MPI.Exception as error:
        stages.fail(str(error))
    return MPI.COMM_WORLD

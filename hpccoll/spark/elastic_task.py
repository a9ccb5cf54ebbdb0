# SPDX-License-Identifier: Apache-2.0
"""The task of an elastic job: the agent of one slot, which starts, watches and kills workers there.

The agent lives as long as its connection to the driver. If the connection breaks before the driver ends the job, the
task fails, and Spark's retry starts the next agent.
"""

import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from hpccoll import channel, inherited
from hpccoll.launch_protocol import COORDINATOR
from hpccoll.tools.launch.elastic.agents import END, LocalAgent

__all__ = ["SlotTask", "in_slot"]

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL at the end of the job."""


@dataclass(frozen=True)
class SlotTask:
    """The parameters of all tasks, from the driver."""

    variables: Mapping[str, str]
    """The environment variables of the workers."""
    executable: str
    """The Python of the workers; "": the Python of the task."""


def in_slot(task: SlotTask, partition: int, _rows: Iterable[int]) -> Iterator[int]:
    """Execute the driver's commands until it ends the job.

    :raises ChannelError: the connection broke before
    """
    context = TaskContext.get()
    name = f"{platform.node()}@{partition}.{context.attemptNumber() if context else 0}"
    secret, addresses = channel.parse(task.variables[COORDINATOR])
    connection, lock = channel.connect(addresses, secret), threading.Lock()

    def say(message: dict[str, object]) -> None:
        with lock:
            connection.send(json.dumps(message).encode())

    def ended(worker: int, status: int, how: str) -> None:
        say({"ended": worker, "status": status, "how": f"{how} (host {platform.node()})"})

    def halted(worker: int, process: int) -> None:
        say({"halted": worker, "process": process})

    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**inherited.environment(), "PYTHONPATH": path, **task.variables}
    agent = LocalAgent(
        [task.executable or sys.executable, "-m", "hpccoll.spark.elastic_worker"], environment, "", ended, halted
    )
    say({"agent": name, "number": 0})
    try:
        while END not in (order := json.loads(connection.receive())):
            if "start" in order:
                agent.start(int(order["start"]), order["variables"])
            elif "signal" in order:
                agent.signal(int(order["signal"]), int(order["number"]))
        agent.end_all(signal.SIGTERM, GRACE)
    finally:
        agent.end_all(signal.SIGKILL, GRACE)
        connection.close()
    yield from ()

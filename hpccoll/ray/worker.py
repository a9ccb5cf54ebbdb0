# SPDX-License-Identifier: Apache-2.0
"""A rank of a RayExecutor: the code in the actor."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from hpccoll import _core, inherited
from hpccoll.default_world import shutdown

__all__ = ["Where", "Worker", "prepare", "where"]


@dataclass(frozen=True)
class Where:
    """The location of a worker."""

    machine: str
    """Equal on workers that can share memory."""
    host: str
    address: str
    node: str
    """Ray's number of the node; a machine may run several nodes."""
    pid: int
    devices: tuple[str, ...]
    """The GPUs that Ray has assigned to this worker."""

    def __str__(self) -> str:
        return f"{self.host}, pid {self.pid}"


def where() -> Where:
    """Return the location of this process."""
    return Where(
        _core.machine_name(),
        platform.node(),
        ray.util.get_node_ip_address(),
        ray.get_runtime_context().get_node_id(),
        os.getpid(),
        tuple(map(str, ray.get_gpu_ids())),
    )


def prepare(variables: Mapping[str, str]) -> None:
    """Set variables of this process."""
    for name, value in variables.items():
        inherited.publish(name, value)


class Worker:
    """The class of the actors."""

    def __init__(self) -> None:
        self.executable: Any = None

    def where(self) -> Where:
        """Return the location of this worker."""
        return where()

    def prepare(self, variables: Mapping[str, str]) -> None:
        """Set variables."""
        prepare(variables)

    def make(self, cls: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Make the object that execute() hands to functions."""
        self.executable = cls(*args, **kwargs)

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function."""
        return function(*args, **kwargs)

    def serve(self, variables: Mapping[str, str], making: Sequence[Any], method: str, args: Sequence[Any]) -> list[Any]:
        """Call a method as a worker of an elastic job, and shut the World down.

        :returns: its result, in a list; [] if the job has released this worker, or the function has called sys.exit(0)
        """
        prepare(variables)
        if making:
            self.make(*making)
        try:
            result = getattr(self, method)(*args)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"the function has called sys.exit({end.code!r})") from end
            shutdown()  # this process lives on, and the other ranks would wait for it
            return []
        shutdown()
        return [result]

    def execute(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with the object."""
        return function(self.executable)

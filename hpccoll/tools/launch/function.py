# SPDX-License-Identifier: Apache-2.0
"""`hpccoll.run(function, np=4)`: a job whose ranks call one function, and the results of all of them.

The function goes to the ranks, and the results come back, as pickled bytes over authenticated connections to this
process (`hpccoll.channel`): nothing is unpickled that does not come from a process with the job's secret.
"""

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from hpccoll import errors, inherited
from hpccoll.channel import Channel
from hpccoll.text import some_ranks
from hpccoll.tools.launch.allocation import allocation_of
from hpccoll.tools.launch.job import LaunchError, parse_hosts, read_hostfile

__all__ = ["CALLER", "LARGEST", "Results", "checked_variables", "pickler", "run"]

CALLER = "_HPCCOLL_CALLER"
"""The variable that holds the secret and the addresses of the process that calls `run`."""
LARGEST = 1 << 40
"""Bytes of a function or a result."""


def run(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    np: int | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    nodes: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    launcher: str | None = None,
    executable: str | None = None,
) -> list[Any]:
    """Call a function on all ranks of a new job, which `hpccoll run` starts, and wait for its results.

    The ranks are new processes. A function of a module is imported there under its name; any other one, a lambda or a
    function of `__main__`, needs `pip install cloudpickle`. The function calls `hpccoll.init()` itself.

    :param function: what each rank calls
    :param args: its arguments, the same on all ranks
    :param kwargs: its arguments by keyword
    :param np: the number of ranks; None: the slots of `hosts`, or of the scheduler's allocation
    :param hosts: hosts and how many ranks each takes, as `h1:2,h2:2`; None: this machine, or the allocation
    :param hostfile: a file with the hosts, one per line, as `h1 slots=2`
    :param nodes: let the ranks of this machine act as so many nodes, as `2`, or `3+1`
    :param timeout: seconds after which the job is ended
    :param env: variables to set in the ranks; no argument of a process has their values
    :param launcher: the mpirun or mpiexec to use
    :param executable: the Python of the ranks; None: this one
    :returns: the results of the function, in the order of the ranks
    :raises RankError: the function raised on some rank; the error names the rank, has its traceback, and is chained to
        the exception itself if that can be pickled
    :raises LaunchError: the job could not be started, or ended without the results of all ranks
    :raises InvalidArgumentError: (a ValueError) `env` has what is no variable
    """
    env = checked_variables("hpccoll.run: env", env)
    from hpccoll.tools.launch.listener import Listener, addresses_towards  # a server, which no rank needs

    job = Results(pickler().dumps((function, tuple(args), dict(kwargs or {}))))
    options = {"-np": np, "-H": hosts, "--hostfile": hostfile, "--nodes": nodes, "--launcher": launcher}
    command = [sys.executable, "-m", "hpccoll", "run"]
    command += [word for name, value in options.items() if value is not None for word in (name, str(value))]
    command += ["--timeout", str(timeout)] if timeout is not None else []
    command += [word for name in env for word in ("-x", name)]  # any user of a machine can read arguments
    listed = read_hostfile(hostfile) if hostfile else parse_hosts(hosts) if hosts else ()
    allocation = None if listed else allocation_of(inherited.environment())
    reached = allocation.hosts if allocation else [host.name for host in listed]
    with Listener(addresses_towards(reached), job.serve) as listener:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        command += ["-x", CALLER, "-x", "PYTHONPATH", executable or sys.executable, "-m", "hpccoll.tools.launch.call"]
        variables = {**inherited.environment(), **env, CALLER: listener.variable, "PYTHONPATH": path}
        status = subprocess.run(command, env=variables, check=False).returncode
    return job.results(status)


class Results:
    """The function for the ranks, and their results."""

    def __init__(self, task: bytes) -> None:
        """Keep the function.

        :param task: the function, its arguments and those by keyword, pickled
        """
        self._task = task
        self._size = 0
        self._answers: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def serve(self, channel: Channel) -> None:
        """Serve one rank: receive its rank and size, send the function, receive its result."""
        rank, size = pickle.loads(channel.receive())
        channel.send(self._task)
        answer = channel.receive(LARGEST)
        with self._lock:
            self._size = size
            self._answers[rank] = answer
        channel.send(b"received")

    def answer(self, rank: int) -> bytes:
        """Give the answer of a rank, pickled; b"" where there is none."""
        with self._lock:
            return self._answers.get(rank, b"")

    def results(self, status: int) -> list[Any]:
        """Unpickle the results.

        :param status: the exit status of `hpccoll run`
        """
        outcomes = {rank: pickle.loads(answer) for rank, answer in self._answers.items()}  # in order of arrival
        for rank, (_, error) in outcomes.items():
            if error is not None:
                host, text, exception = error
                cause = None
                with contextlib.suppress(Exception):  # unpickling it may fail
                    cause = pickle.loads(exception)
                raise errors.RankError(rank, host, text) from cause  # the first failure, which caused the others
        missing = set(range(self._size)) - set(outcomes)
        if status or missing or not outcomes:
            who = f"; no result came from {some_ranks(missing)}" if missing else ""
            raise LaunchError(f"hpccoll.run: the job ended with status {status}{who}")
        return [value for _, (value, _) in sorted(outcomes.items())]


def checked_variables(what: str, env: Mapping[str, str] | None) -> dict[str, str]:
    """Check variables for the ranks, before processes are started which would fail of them.

    :param what: the argument, for errors
    :returns: them; {} for None
    :raises InvalidArgumentError: names the variable
    """
    if env is not None and not isinstance(env, Mapping):
        raise errors.InvalidArgumentError(f"{what} is a {type(env).__name__}: give a dict of variables")
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise errors.InvalidArgumentError(f"{what}: {name!r} is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise errors.InvalidArgumentError(f"{what}: the value of {name} is {value!r}, which is no text")
    return dict(env or {})


def pickler() -> ModuleType:
    """Find cloudpickle, or else pickle."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return pickle

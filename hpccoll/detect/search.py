# SPDX-License-Identifier: Apache-2.0
"""Finds the launcher and the scheduler of this process. Each of them is a module of `launchers`, found by its file.

A module has ORDER, and one or both of

    place(env) -> Place | None          the place of this process in the job step
    allocation(env, read) -> Allocation | None    the scheduler's allocation; read(path) reads a host file

Launchers start launchers: srun starts mpirun's daemons, and a rank then sees the variables of both. ORDER tells
which launcher is closer to the process: the launcher with the higher number started the one with the lower, whose
variables decide.
"""

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from hpccoll import errors
from hpccoll.detect import launchers
from hpccoll.detect.hosts import Allocation
from hpccoll.detect.job_place import Place

__all__ = ["allocation", "job", "place", "places", "started_by"]


@cache
def _modules() -> tuple[ModuleType, ...]:
    names = [found.name for found in pkgutil.iter_modules(launchers.__path__)]
    modules = [importlib.import_module(f"{launchers.__name__}.{name}") for name in names]
    return tuple(sorted(modules, key=lambda module: module.ORDER))


def places(env: Mapping[str, str]) -> Iterator[Place]:
    """For each launcher with variables in `env`, yield the place that it gives, the closest launcher first."""
    for module in _modules():
        if hasattr(module, "place") and (found := module.place(env)):
            yield found


def place(env: Mapping[str, str]) -> Place | None:
    """Find the place that the closest launcher gives this process; None if no launcher started it."""
    return next(places(env), None)


def _text_of(path: str) -> str:
    """Read a host file.

    :raises OSError: it cannot be read
    :raises InvalidArgumentError: it is no text
    """
    try:
        return Path(path).read_text()
    except UnicodeDecodeError as error:
        raise errors.InvalidArgumentError(f"the host file {path} is no text: {error}") from None


def allocation(env: Mapping[str, str], read: Callable[[str], str] = _text_of) -> Allocation | None:
    """Find the allocation of the job that this process is part of.

    :param read: reads the host file that a scheduler's variable names
    :returns: None if the process is part of no job
    :raises OSError: the host file cannot be read
    :raises InvalidArgumentError: the scheduler's list of hosts cannot be understood
    """
    for module in _modules():
        if hasattr(module, "allocation") and (found := module.allocation(env, read)):
            return found  # type: ignore[no-any-return]
    return None


def job(env: Mapping[str, str]) -> str:
    """Name the scheduler's job that this process is part of; "" if there is none.

    It reads no host file: that of PBS is on the job's first node only, and a container may lack any.
    """
    with contextlib.suppress(errors.InvalidArgumentError):
        if found := allocation(env, lambda _path: ""):
            return found.job
    return ""


def started_by(env: Mapping[str, str]) -> str:
    """Name the closest launcher and the scheduler's job for the line at the start; "" if there is neither."""
    closest = place(env)
    try:
        job = allocation(env)
    except (OSError, errors.InvalidArgumentError) as error:
        job_text = f"a job of unknown hosts ({error})"
    else:
        job_text = str(job) if job else ""
    return ", in ".join(filter(None, (f"started by {closest}" if closest else "", job_text)))

# SPDX-License-Identifier: Apache-2.0
"""Asks the launchers: each is a module of `launchers`, found there by itself.

A module has ORDER, and one or both of

    place(env) -> Place | None          which process of the job step this is
    allocation(env, read) -> Allocation | None    what the scheduler gave to the job; read(path) reads a host file

Launchers start launchers: mpirun's daemons come by srun, and a rank then sees the variables of both. ORDER says who is
closer to the process: the lower number was started by the higher one, so it knows better.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from hpccoll import errors
from hpccoll.detect import launchers
from hpccoll.detect.hosts import Allocation
from hpccoll.detect.place import Place

__all__ = ["allocation", "place", "places", "started_by"]


@cache
def _modules() -> tuple[ModuleType, ...]:
    names = [found.name for found in pkgutil.iter_modules(launchers.__path__)]
    modules = [importlib.import_module(f"{launchers.__name__}.{name}") for name in names]
    return tuple(sorted(modules, key=lambda module: module.ORDER))


def places(env: Mapping[str, str]) -> Iterator[Place]:
    """What each launcher says that left its variables here, the closest one first."""
    for module in _modules():
        if hasattr(module, "place") and (found := module.place(env)):
            yield found


def place(env: Mapping[str, str]) -> Place | None:
    """What the launcher says that started this process; None: no launcher did."""
    return next(places(env), None)


def allocation(
    env: Mapping[str, str], read: Callable[[str], str] = lambda path: Path(path).read_text()
) -> Allocation | None:
    """What the scheduler has given to the job that this process is part of; None: it is part of none."""
    for module in _modules():
        if hasattr(module, "allocation") and (found := module.allocation(env, read)):
            return found  # type: ignore[no-any-return]
    return None


def started_by(env: Mapping[str, str]) -> str:
    """For the line at the start: the launcher that won and the scheduler's job, or ""."""
    closest = place(env)
    try:
        job = allocation(env)
    except (OSError, errors.InvalidArgumentError) as error:
        job_text = f"a job of unknown hosts ({error})"
    else:
        job_text = str(job) if job else ""
    return ", in ".join(filter(None, (f"started by {closest}" if closest else "", job_text)))

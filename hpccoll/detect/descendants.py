# SPDX-License-Identifier: Apache-2.0
"""Finds the descendants of a process in /proc, also those that another process has adopted."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["begun_with", "descendants", "own_number", "state_and_parent"]

PROC = Path("/proc")


def descendants(pid: int, *, zombies: bool = True) -> list[int]:
    """Find the descendants of a process, parents before their children.

    :param pid: the process, which is not among them
    :param zombies: False: without processes that have ended and were not reaped, and without their descendants
    """
    children: dict[int, list[int]] = {}
    for number in _numbers():
        with contextlib.suppress(OSError, ValueError):
            state, parent = state_and_parent(number)
            if zombies or state != "Z":
                children.setdefault(parent, []).append(number)
    found = [pid]
    for one in found:  # grows meanwhile
        found += [child for child in children.get(one, []) if child not in found]
    return found[1:]


def begun_with(variables: Mapping[str, str]) -> list[int]:
    """Find the processes of this user whose environment had these variables when their programs began.

    :param variables: with these values; at least one
    """
    wanted, found = {f"{name}={value}".encode() for name, value in variables.items()}, []
    for number in _numbers():
        with contextlib.suppress(OSError):
            if wanted <= set((PROC / str(number) / "environ").read_bytes().split(b"\0")):
                found.append(number)
    return found


def _numbers() -> Iterator[int]:
    """Find the processes that kill() knows by their numbers in /proc.

    Where /proc shows those of another namespace, there are none: the caller would kill strangers, or itself.
    """
    if own_number() == str(os.getpid()):
        yield from (int(entry.name) for entry in PROC.glob("[0-9]*"))


def own_number() -> str:
    """Return the number of this process in /proc, which is another one where a container shows its host's processes.

    :returns: "": there is no /proc
    """
    try:
        return os.readlink(PROC / "self")
    except OSError:
        return ""


def state_and_parent(pid: int) -> tuple[str, int]:
    """Return the state of a process, as ps shows it, and the pid of its parent.

    :raises OSError: there is none of this number
    """
    state, parent = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)

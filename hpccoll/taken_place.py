# SPDX-License-Identifier: Apache-2.0
"""The place of a rank in its job is taken once: a process that the rank starts inherits the launcher's variables.

Such a process is a worker of a data loader or of multiprocessing, which imports the program anew, or any command. If it
called init(), it would be a second process of that rank, for the launcher, for MPI and for the other ranks, which hang
or end then. So the rank leaves a variable in its environment, by which its children know.
"""

import hashlib
import os
from collections.abc import Mapping

from hpccoll import detect, errors, inherited
from hpccoll.detect.descendants import state_and_parent
from hpccoll.launch_protocol import COORDINATOR, LAUNCHER, STORE, WORKER

__all__ = ["TAKEN", "check", "take"]

TAKEN = "_HPCCOLL_TAKEN"
"""The variable: the process of a rank, its number, and a digest of its place in the job."""
_taken_by = 0
"""The process that has called take(), which a forked child inherits, too."""


def take(rank: int) -> None:
    """Note that this process is a rank of the job that its launcher has started; without one nothing is noted."""
    global _taken_by
    if place := _place(inherited.environment()):
        _taken_by = os.getpid()
        inherited.publish(TAKEN, f"{_taken_by} {rank} {place}")


def check() -> None:
    """Refuse that a child of a rank takes the place of its parent. A forked child gets its errors elsewhere.

    :raises StartError: this is such a child
    """
    env = inherited.environment()
    pid, rank, place = [*env.get(TAKEN, "").split(), "", "", ""][:3]
    if not pid or _taken_by or int(pid) not in _parents() or place != _place(env):
        return
    raise errors.StartError(
        f"this process was started by rank {rank} (pid {pid}), and is no rank itself: it has the rank's place in the "
        "job from it. Call init() in the rank alone: put it behind `if __name__ == '__main__':`, because workers of "
        "multiprocessing and of data loaders import the program. To start a job from a rank, use its launcher"
    )


def _parents() -> tuple[int, ...]:
    """The process that has started this one, and that one's parent: between is the fork server of multiprocessing."""
    parent = os.getppid()
    try:
        return parent, state_and_parent(parent)[1]
    except OSError:
        return (parent,)


def _place(env: Mapping[str, str]) -> str:
    """Return a digest of what tells a rank from the others of its job, and from those of other jobs; "": it is none."""
    place = detect.place(env)
    if COORDINATOR not in env and (place is None or place.rank is None or place.size == 1):
        return ""
    known: list[object] = [place and (place.launcher, place.rank, place.job)]
    known += [env.get(name) for name in (LAUNCHER, STORE, COORDINATOR, WORKER)]
    return hashlib.sha256(repr(known).encode()).hexdigest()

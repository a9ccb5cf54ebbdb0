# SPDX-License-Identifier: Apache-2.0
"""The place of a process in its job, as the launcher's variables tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["Place", "number", "read"]


MOST_DIGITS = 19
"""A number with at least this many digits cannot be a count."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a process in the group that its launcher started. Values are None if the launcher gives none."""

    launcher: str
    """Its name as users call it, like "srun"."""
    variable: str
    """The variable that gave the rank, or the size where no variable gives the rank."""
    rank: int | None
    size: int | None
    size_variable: str = ""
    local_rank: int | None = None
    """Number among the processes of its node."""
    local_size: int | None = None
    node: str = ""
    """Name or number of its node; "" where the launcher does not say."""
    job: str = ""
    """A value that only the processes of one start share; "" if the launcher sets no such variable."""
    detail: str = ""
    """A text for the line at the start, such as the requested process-management protocol."""
    mpi: bool = True
    """Whether the launcher starts MPI jobs, so that MPI must find the same number of ranks."""
    daemons: bool = False
    """The launcher may have started the daemons of another launcher, and not the ranks themselves."""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.launcher}{detail}, as {self.variable} says"

    def without_numbers(self) -> Place:
        """Return the fields that are the same on all processes of one start."""
        return dataclasses.replace(self, rank=None, local_rank=None, local_size=None, node="")


def number(env: Mapping[str, str], name: str) -> int | None:
    """Read the number in a variable; None if it is not set or holds something else."""
    text = env.get(name, "")
    return int(text) if text.isdecimal() and len(text) < MOST_DIGITS else None


def read(
    launcher: str,
    env: Mapping[str, str],
    *,
    rank: str,
    size: str = "",
    local_rank: str = "",
    local_size: str = "",
    node: str = "",
    job: tuple[str, ...] = (),
    detail: str = "",
    mpi: bool = True,
) -> Place | None:
    """Read a place from the environment.

    The parameters named after fields of Place are names of variables; "" where the launcher has no such variable.

    :param launcher: see Place
    :param job: names of variables whose values together form Place.job
    :param detail: see Place
    :param mpi: see Place
    :returns: None if neither rank nor size is set
    """
    own, count = number(env, rank), number(env, size)
    if own is None and count is None:
        return None
    return Place(
        launcher,
        rank if own is not None else size,
        own,
        count,
        size,
        number(env, local_rank),
        number(env, local_size),
        env.get(node, ""),
        "-".join(env[name] for name in job if env.get(name)),
        detail,
        mpi,
    )

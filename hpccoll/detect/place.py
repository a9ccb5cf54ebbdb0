# SPDX-License-Identifier: Apache-2.0
"""What a launcher tells a process about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["Place", "number", "read"]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a process stands among those that its launcher has started together. None: the launcher does not say."""

    launcher: str
    """As users call it, like "srun"."""
    said_by: str
    """The variable that decided."""
    rank: int | None
    size: int | None
    size_said_by: str = ""
    local_rank: int | None = None
    """Number among the processes of its node."""
    local_size: int | None = None
    node: str = ""
    """Name or number of its node; "" where the launcher does not say."""
    job: str = ""
    """Equal on the processes that were started together, and on no others; "" where the launcher gives nothing."""
    detail: str = ""
    """What else the line at the start shows, like the protocol that was asked for."""
    mpi: bool = True
    """It starts MPI jobs: MPI must see as many ranks."""
    daemons: bool = False
    """It may have started the daemons of another launcher, and not the ranks themselves."""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.launcher}{detail}, as {self.said_by} says"


def number(env: Mapping[str, str], name: str) -> int | None:
    """The number in a variable; None if it is not set or holds something else."""
    text = env.get(name, "")
    return int(text) if text.isdecimal() else None


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
    """The place that these variables tell; None if neither rank nor size is said."""
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

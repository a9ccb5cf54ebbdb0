# SPDX-License-Identifier: Apache-2.0
"""Functions of torch that serve backends of some names only: for hpccoll's groups they do what they do for those.

torch's own functions stay as they are for the groups of other backends.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from hpccoll.torch.distributed.process_group import ProcessGroup

__all__ = ["serve", "serve_dtensor"]

_c10d: Any = dist.distributed_c10d


def serve() -> None:
    """Let torch's functions accept hpccoll's groups."""
    _replace(_c10d.monitored_barrier, _monitored_barrier)
    if hasattr(_c10d, "split_group"):
        _replace(_c10d.split_group, _split_group)
    _serve_timeouts()


def _replace(given: Any, ours: Any) -> None:
    """Put a function in place of torch's, under both of its addresses."""

    @wraps(given)
    def chosen(group: Any = None, *arguments: Any, **options: Any) -> Any:
        group = options.pop("parent_pg", options.pop("group", group))
        meant = dist.group.WORLD if group is None else group
        return (ours if isinstance(meant, ProcessGroup) else given)(
            meant if isinstance(meant, ProcessGroup) else group, *arguments, **options
        )

    setattr(_c10d, given.__name__, chosen)
    setattr(dist, given.__name__, chosen)


def _serve_timeouts() -> None:
    """Let torch set the time limit of a group; of backends that it does not know it only warns."""
    given = getattr(_c10d, "_set_pg_timeout", None)
    if given is None:  # a torch without it
        return

    @wraps(given)
    def chosen(timeout: timedelta, group: Any = None) -> None:
        meant = dist.group.WORLD if group is None else group
        if isinstance(meant, ProcessGroup):
            meant.set_timeout(timeout)
        else:
            given(timeout, group)

    _c10d._set_pg_timeout = chosen  # noqa: SLF001


def _monitored_barrier(
    group: ProcessGroup, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    group.monitored_barrier(timeout, wait_all_ranks)


def _split_group(
    parent: ProcessGroup,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,  # noqa: ARG001 - of nccl
    group_desc: str | None = None,
    backend: str | None = None,  # noqa: ARG001 - the parent's
) -> Any:
    """Make the group of those of `split_ranks`, ranks of the parent, that have this rank; None if there are none."""
    parent.splits += 1
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    for ranks in split_ranks:
        if not ranks or len(ranks) != len(set(ranks)) or not set(ranks) <= set(range(parent.size())):
            raise ValueError(f"split_ranks: {list(ranks)} are not different ranks of a group of {parent.size()}")
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
    if mine is None:
        return None
    members = [dist.get_global_rank(parent, rank) for rank in mine]
    with _named(f"{parent.group_name} split {parent.splits}: {'_'.join(map(str, mine))}"):
        return dist.new_group(members, timeout=timeout, use_local_synchronization=True, group_desc=group_desc)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Let torch give a new group this name, and not one with the number of groups that this rank is in.

    The members of a split may be in different numbers of groups, and those of a name wait for each other.
    """
    given = _c10d._process_group_name  # noqa: SLF001
    _c10d._process_group_name = lambda *_, **__: name  # noqa: SLF001
    try:
        yield
    finally:
        _c10d._process_group_name = given  # noqa: SLF001


def serve_dtensor() -> None:
    """Let DTensor send shards to where they belong, if it is loaded. On the host it gathers all of them on all ranks.

    torch takes each group in host memory for gloo, which had no alltoall.
    """
    places = ("torch.distributed.tensor._collective_utils", "torch.distributed.tensor.placement_types")
    modules: list[Any] = [sys.modules[place] for place in places if place in sys.modules]
    given = getattr(modules[0], "shard_dim_alltoall", None) if modules else None
    if given is None or hasattr(given, "__wrapped__"):
        return

    @wraps(given)
    def chosen(input: torch.Tensor, gather_dim: int, shard_dim: int, mesh: Any, mesh_dim: int) -> Any:  # noqa: A002
        group = mesh.get_group(mesh_dim)
        if not isinstance(group, ProcessGroup):
            return given(input, gather_dim, shard_dim, mesh, mesh_dim)
        operation: Any = torch.ops._dtensor.shard_dim_alltoall  # noqa: SLF001
        return operation(input, gather_dim, shard_dim, group.group_name)

    for module in modules:
        if hasattr(module, "shard_dim_alltoall"):
            module.shard_dim_alltoall = chosen

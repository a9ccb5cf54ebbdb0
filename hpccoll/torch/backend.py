# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's backend "hpccoll": importing this module registers it.

>>> import hpccoll.torch.backend
>>> torch.distributed.init_process_group("hpccoll")
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from hpccoll import errors
from hpccoll.torch import rendezvous
from hpccoll.torch.process_group import ProcessGroup

__all__ = ["NAME"]

NAME = "hpccoll"


def _make_group(options: Any, _: Any) -> ProcessGroup:
    """What torch calls on the members of a new group.

    :param options: torch's store, rank, size, timeout, group_id, and the members' global ranks (none: all)
    """
    rank, size = options.group_rank, options.group_size
    members = options.global_ranks_in_group
    parent = dist.group.WORLD if dist.is_initialized() else None
    if members and isinstance(parent, ProcessGroup):
        meeting = rendezvous.meeting_through(options.store, rank, size, options.timeout)
        world = parent.world.subset_among(members, lambda _, value: meeting.allgather(value))
    else:
        world = rendezvous.meet(rank, size, options.store, options.timeout)
    return ProcessGroup(world, str(options.group_id), options.timeout)


def _register() -> None:
    if not dist.is_available():
        raise errors.UnsupportedError("this PyTorch was built without torch.distributed")
    dist.Backend.register_backend(NAME, _make_group, extended_api=True, devices=["cpu"])
    rendezvous.install()


_register()

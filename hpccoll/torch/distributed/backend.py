# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's backend "hpccoll". Importing hpccoll.torch registers it, and hpccoll_torch_backend imports that.

>>> torch.distributed.init_process_group("hpccoll")
"""

import weakref
from functools import wraps
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist

from hpccoll import errors
from hpccoll.torch.distributed import by_name, rendezvous
from hpccoll.torch.distributed.futures import Future
from hpccoll.torch.distributed.process_group import ProcessGroup
from hpccoll.torch.distributed.work import Work
from hpccoll.worlds import subset_among

__all__ = ["NAME", "register"]

NAME = "hpccoll"

_c10d: Any = dist.distributed_c10d


def _make_group(options: Any, _: Any) -> ProcessGroup:
    """Make a process group. torch calls this on the members of a new group.

    :param options: torch's store, rank, size, timeout, group_id, and the members' global ranks (empty: all ranks)
    """
    by_name.serve_dtensor()
    rank, size = options.group_rank, options.group_size
    members = options.global_ranks_in_group
    parent = dist.group.WORLD if dist.is_initialized() else None
    if members and isinstance(parent, ProcessGroup):
        found = rendezvous.through_store(options.store, rank, size, options.timeout)
        world = subset_among(parent.world, members, lambda _, value: found.compare(value))
    else:
        world = rendezvous.make_world(rank, size, options.store, options.timeout)
    return ProcessGroup(world, str(options.group_id), options.timeout)


def register() -> None:
    """Register the backend with torch, and work around faults of torch."""
    if NAME.upper() in vars(dist.Backend):  # the entry that hpccoll_torch_backend has made
        delattr(dist.Backend, NAME.upper())
        dist.Backend.backend_list.remove(NAME)
    dist.Backend.register_backend(NAME, _make_group, extended_api=True, devices=["cpu", "cuda"])
    _refuse_mixtures()
    if hasattr(_c10d, "_shutdown_backend"):
        _shut_down_with_torch()
    # torch 2.15 attaches a recorder to each group except these; that fails with a group that is written in Python:
    if hasattr(_c10d, "_FR_SELF_RECORDING_BACKENDS"):
        _c10d._FR_SELF_RECORDING_BACKENDS.add(NAME)  # noqa: SLF001
    rendezvous.install()
    by_name.serve()
    _let_reducers_keep_their_work()
    _stay_out_of_compiled_programs()


def _refuse_mixtures() -> None:
    """Let torch refuse `cpu:hpccoll,cuda:nccl`. It would silently make a group with hpccoll only."""
    given = _c10d.BackendConfig.get_device_backend_map  # a group's maker calls it, and the backend may be new by then

    def checked(self: Any) -> dict[str, str]:
        devices: dict[str, str] = given(self)
        names = set(devices.values())
        if NAME in names and (names != {NAME} or "cpu" not in devices):
            backend = ",".join(f"{device}:{name}" for device, name in devices.items())
            raise errors.UnsupportedError(
                f"backend {backend}: hpccoll cannot be one part of a process group, which torch then takes as the "
                'whole: say "hpccoll", which moves host memory and that of GPUs, and make a second group of the '
                "other backend with torch.distributed.new_group(backend=...)"
            )
        return devices

    _c10d.BackendConfig.get_device_backend_map = checked


def _shut_down_with_torch() -> None:
    """Let destroy_process_group() end hpccoll's groups, too; torch 2.4 to 2.6 ends only groups of known backends."""
    shut_down = _c10d._shutdown_backend  # noqa: SLF001

    def shut_down_ours_too(group: Any) -> None:
        if isinstance(group, ProcessGroup):
            group.shutdown()
        else:
            shut_down(group)

    _c10d._shutdown_backend = shut_down_ours_too  # noqa: SLF001


def _stay_out_of_compiled_programs() -> None:
    """Keep torch.compile from methods that C++ calls while a compiled program runs, as DDP does.

    torch.compiler.disable() has the same effect, but it loads the compiler, which takes seconds even if nothing is
    compiled.
    """
    dynamo: Any = torch._C._dynamo.eval_frame  # noqa: SLF001
    if not hasattr(dynamo, "set_code_exec_strategy"):
        return  # older than 2.13, the first version that needs this
    skip = dynamo._FrameAction.SKIP  # noqa: SLF001
    as_it_is = dynamo._FrameExecStrategy(skip, skip)  # noqa: SLF001 - for this function, and for what it calls
    for kind in (ProcessGroup, Work, Future):
        for function in vars(kind).values():
            if isinstance(function, FunctionType):
                dynamo.set_code_exec_strategy(function.__code__, as_it_is)


_last_of: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""For each of DDP's reducers the work that it was given last."""


def _let_reducers_keep_their_work() -> None:
    """Keep the Python half of a work that DDP hands to its reducer.

    With model.join(divide_by_initial_world_size=False) the reducer waits for the work in backward(). It holds the C++
    half only; without the other one, C++ would wait for ever.
    """
    reducer: Any = torch._C._distributed_c10d.Reducer  # noqa: SLF001
    given = getattr(reducer, "_set_forward_pass_work_handle", None)
    if given is None:  # a torch whose reducers take no work
        return

    @wraps(given)
    def kept(self: Any, work: Any, *arguments: Any, **options: Any) -> None:
        given(self, work, *arguments, **options)
        _last_of[self] = work

    reducer._set_forward_pass_work_handle = kept  # noqa: SLF001

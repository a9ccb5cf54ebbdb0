# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks. An object that cannot be pickled is an ObjectError (a RuntimeError) on all ranks."""

import pickle
from collections.abc import Callable
from typing import Any

from hpccoll import objects
from hpccoll.frontend import names
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.refused import tells

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn"]


@tells
def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Give the root's object to all ranks of the process set.

    :param obj: anything that pickle can send, or cloudpickle if that is installed (functions of the main program); only
        the root's counts
    :param root_rank: global rank of the root, also within a process set
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: `obj` itself on the root, a copy of the root's on the other ranks
    :raises ObjectError: the root's object cannot be pickled, or not unpickled on this rank
    :raises InvalidArgumentError: (a ValueError) the root or this rank is not in the process set
    """
    root, core = root_in(process_set, root_rank), world_of(process_set).core
    received = objects.broadcast(core, obj, root, names.request("broadcast_object", name), _dumps)
    return obj if core.rank == root else received


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Return broadcast_object() with all arguments but the object.

    :param root_rank: global rank of the root, also within a process set
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: a function of the object
    """
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Collect one object of each rank of the process set.

    :param obj: anything that pickle can send, or cloudpickle if that is installed
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: the objects, in the order of the ranks; a rank that has joined has none
    :raises ObjectError: an object cannot be pickled, or not unpickled on this rank
    :raises InvalidArgumentError: (a ValueError) this rank is not in the process set
    """
    core = world_of(process_set).core
    return objects.allgather(core, obj, names.request("allgather_object", name), _dumps)


def _dumps(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            import cloudpickle
        except ImportError:
            raise pickle.PicklingError(
                f"{error} (cloudpickle, which can send functions and local classes, is not installed)"
            ) from None
    data: bytes = cloudpickle.dumps(obj)
    return data

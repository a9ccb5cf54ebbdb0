# SPDX-License-Identifier: Apache-2.0
"""Objects of Python to all ranks. What cannot be pickled is one ObjectError (a RuntimeError) on all of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from hpccoll import objects
from hpccoll.frontend import names
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn"]


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Give the root's object to all ranks of the process set.

    :param obj: anything that pickle knows, or cloudpickle if that is installed (functions of the main program)
    :param root_rank: global rank
    :returns: `obj` itself on the root, a copy on the other ranks
    :raises ObjectError: the root's object cannot be pickled
    """
    root, own = root_in(process_set, root_rank), world_of(process_set).core
    received = objects.broadcast(own, obj, root, names.request("broadcast_object", name), _dumps)
    return obj if own.rank == root else received


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """broadcast_object() with everything but the object."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Collect one object of each rank of the process set, in the order of its ranks; see broadcast_object."""
    own = world_of(process_set).core
    return objects.allgather(own, obj, names.request("allgather_object", name), _dumps)


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

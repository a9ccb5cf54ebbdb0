# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, as bytes. What pickle refuses is one error on all ranks; no rank waits for it.

The argument `dumps` makes the bytes of an object, which pickle.loads() must understand.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from hpccoll import _core, errors

__all__ = ["Dumps", "allgather", "broadcast"]

Dumps = Callable[[Any], bytes]


class _Refused(str):
    """The reason why an object could not be packed; it travels in the object's place."""

    __slots__ = ()


def broadcast(own: _core.Set, value: Any, root: int, name: str | None, dumps: Dumps = pickle.dumps) -> Any:
    """Give the root's object to all ranks of the process set; the root has a copy, too."""
    own.check_root(root)
    data = _pack(value, dumps) if own.rank == root else np.empty(0, np.uint8)
    received = own.collective("allgather", data, name, None, True).wait()
    if not len(received):
        raise errors.RootJoinedError(f"broadcast_object of {name or 'no name'}: rank {root}, the root, has joined")
    return _unpack(received, root)


def allgather(own: _core.Set, value: Any, name: str | None, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Collect one object of each rank of the process set, in order of the ranks; a joined rank has none."""
    handle = own.collective("allgather", _pack(value, dumps), name, None, True)
    received = handle.wait()
    ends = np.cumsum(handle.rows())[:-1]
    return [_unpack(part, rank) for rank, part in enumerate(np.split(received, ends)) if len(part)]


def _pack(value: Any, dumps: Dumps) -> np.ndarray:
    """`value` as bytes (1-d uint8), or the reason why it has none."""
    try:
        data = dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever the object's own methods raise
        data = pickle.dumps(_Refused(f"a {type(value).__qualname__} that pickle refuses: {error}"))
    return np.frombuffer(data, np.uint8)


def _unpack(data: np.ndarray, rank: int) -> Any:
    """The object that `rank` packed. Raises ObjectError, on all ranks alike, if it could not be packed."""
    value = pickle.loads(data.data)
    if isinstance(value, _Refused):
        raise errors.ObjectError(f"rank {rank} has {value}")
    return value

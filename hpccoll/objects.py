# SPDX-License-Identifier: Apache-2.0
"""Objects between ranks, as bytes. What pickle refuses is one error on all ranks: the others do not wait for it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from hpccoll import _core, errors

__all__ = ["allgather", "pack", "unpack"]


class _Refused(str):
    """Travels in place of an object: why it could not be packed."""

    __slots__ = ()


def pack(value: Any) -> np.ndarray:
    """`value` as bytes (1-d uint8), or the reason why it has none."""
    try:
        data = pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever the object's own methods raise
        data = pickle.dumps(_Refused(f"a {type(value).__qualname__} that pickle refuses: {error}"))
    return np.frombuffer(data, np.uint8)


def unpack(data: np.ndarray, rank: int) -> Any:
    """What `rank` has packed. Raise InvalidArgumentError, as on all ranks, if it could not be."""
    value = pickle.loads(data.tobytes())
    if isinstance(value, _Refused):
        raise errors.InvalidArgumentError(f"rank {rank} has {value}")
    return value


def allgather(own: _core.Set, value: Any, name: str | None) -> list[Any]:
    """Collect one object of each rank of the process set, in order of the ranks."""
    handle = own.allgather(pack(value), name, None, True)
    received = handle.wait()
    ends = np.cumsum(handle.rows())[:-1]
    return [unpack(part, rank) for rank, part in enumerate(np.split(received, ends))]

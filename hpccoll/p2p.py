# SPDX-License-Identifier: Apache-2.0
"""Point-to-point messages: an array from one rank to another. The other ranks do not take part, and there are no names.

The arrays are those that the collective operations take. The examples run on two ranks.
"""

from __future__ import annotations

from typing import Any

from hpccoll import _core
from hpccoll.world import World, current

__all__ = ["ANY_SOURCE", "recv", "recv_async", "send", "send_async"]

Handle = _core.Handle
ANY_SOURCE = -1
"""The `source` of a `recv` that takes a message from any rank."""


def send(x: Any, dest: int, *, tag: int = 0, world: World | None = None) -> None:
    """Send an array to one rank, which calls `recv`. Other ranks do not take part.

    Messages from one sender to one receiver with one tag arrive in the order in which they were sent. The call returns
    when `x` may be changed: at once for up to 8 KiB, and when the message has been received for a larger one. An array
    on a GPU may be received in host memory, and the other way round.

        >>> if hpccoll.rank() == 0:
        ...     hpccoll.send(np.arange(3.0), dest=1, tag=7)
        ... else:
        ...     x = np.empty(3)
        ...     assert hpccoll.recv(x, source=0, tag=7) == 0

    :param x: an array of any shape and dtype; its bytes travel, so both sides must mean the same dtype
    :param dest: the rank, in this World, that receives
    :param tag: a number from 0 to `2**32 - 1`; a `recv` takes messages with its tag
    :param world: the World of the call; None: the World of `init()`
    :raises InvalidArgumentError: `dest` or `tag` is out of range
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    current(world).core.send(x, dest, tag, True).wait()


def send_async(x: Any, dest: int, *, tag: int = 0, world: World | None = None) -> Handle:
    """Begin a `send`, with the same arguments; the Handle's `wait()` returns when `x` may be changed."""
    return current(world).core.send(x, dest, tag)


def recv(x: Any, source: int = ANY_SOURCE, *, tag: int = 0, world: World | None = None) -> int:
    """Receive an array that one rank sends with `send`, from a given rank or from any.

        >>> if hpccoll.rank() == 1:
        ...     hpccoll.send(np.full(2, 5), dest=0)
        ... else:
        ...     x = np.empty(2, np.int64)
        ...     assert hpccoll.recv(x) == 1 and (x == 5).all()

    :param x: a writable array, which takes the message; it has as many bytes as the message
    :param source: the rank, in this World, that sends; ANY_SOURCE takes a message from any rank
    :param tag: a number from 0 to `2**32 - 1`: messages with this tag are received
    :param world: the World of the call; None: the World of `init()`
    :returns: the rank that sent the message
    :raises ResultSizeError: the message does not have the size of `x`; nothing was written
    :raises InvalidArgumentError: `x` cannot be written, or `source` or `tag` is out of range
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    came_from: int = current(world).core.recv(x, source, tag, True).wait()
    return came_from


def recv_async(x: Any, source: int = ANY_SOURCE, *, tag: int = 0, world: World | None = None) -> Handle:
    """Begin a `recv`, with the same arguments; `wait()` returns the rank that sent, then also `Handle.peer`."""
    return current(world).core.recv(x, source, tag)

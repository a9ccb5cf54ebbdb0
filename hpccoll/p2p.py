# SPDX-License-Identifier: Apache-2.0
"""Point-to-point messages: an array from one rank to another. The other ranks do not take part, and there are no names.

The arrays are those that the collective operations take. The examples run on two ranks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpccoll import _core, halo, objects
from hpccoll.array_types import Array, Values

__all__ = ["ANY_SOURCE", "ANY_TAG", "PROC_NULL", "Messages", "Status"]

Handle = _core.Handle
ANY_SOURCE = -1
"""The `source` of a `recv` that takes a message from any rank."""
ANY_TAG = -1
"""The `tag` of a `recv` that takes a message with any tag."""
PROC_NULL = halo.PROC_NULL
"""The `dest` or `source` that is no rank: a send to it and a receive from it end at once and move nothing."""


@dataclass(slots=True)
class Status:
    """Facts about a message: the rank that sent it, its tag, its size. `recv(x, status=Status())` fills it in.

    >>> if hpccoll.rank() == 1:
    ...     hpccoll.send(np.ones(3), dest=0)
    ... else:
    ...     x, status = np.empty(10), hpccoll.Status()
    ...     source = hpccoll.recv(x, status=status)
    ...     assert (source, status.source, status.tag, status.count(x.dtype)) == (1, 1, 0, 3)
    """

    source: int = ANY_SOURCE
    """The rank, in this World, that sent it; PROC_NULL for a receive from PROC_NULL."""
    tag: int = ANY_TAG
    nbytes: int = 0
    """Bytes of the message."""

    def count(self, dtype: DTypeLike) -> int:
        """Give the number of elements of the message.

        :param dtype: what NumPy takes for a dtype
        :returns: the whole elements of this dtype that the message has; 0 of a dtype without bytes (as MPI_Get_count)
        """
        size = int(np.dtype(dtype).itemsize)
        return self.nbytes // size if size else 0

    def take(self, handle: Handle) -> None:
        """Copy the facts about its message from a finished receive or a probe."""
        self.source, self.tag, self.nbytes = handle.peer, handle.tag, handle.nbytes


class Messages:
    """Messages between two ranks, as methods of a World."""

    core: _core.Set

    def send(self, x: Values, dest: int, *, tag: int = 0) -> None:
        """Send an array to one rank, which calls `recv`. Other ranks do not take part.

        Messages from one sender to one receiver with one tag arrive in the order in which they were sent. The call
        returns when `x` may be changed: at once for up to 8 KiB, and when the message has been received for a larger
        one. An array on a GPU may be received in host memory, and the other way round.

            >>> if hpccoll.rank() == 0:
            ...     hpccoll.send(np.arange(3.0), dest=1, tag=7)
            ... else:
            ...     x = np.empty(3)
            ...     assert hpccoll.recv(x, source=0, tag=7) == 0

        :param x: an array of any shape and dtype; the receive has the same dtype, or is a bytearray
        :param dest: the rank, in this World, that receives; PROC_NULL: nothing is sent
        :param tag: a number from 0 to `2**32 - 1`; a `recv` takes messages with its tag
        :raises InvalidArgumentError: `dest` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        self.core.send_now(x, dest, tag)

    def send_async(self, x: Values, dest: int, *, tag: int = 0) -> Handle[None]:
        """Begin a `send`, with the same arguments; the Handle's `wait()` returns when `x` may be changed."""
        return self.core.send(x, dest, tag)

    def recv(
        self,
        x: Array,
        source: int = ANY_SOURCE,
        *,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> int:
        """Receive an array that one rank sends with `send`, from a given rank or from any.

        A message may be shorter than `x`, as in MPI: its bytes go to the beginning of `x`, and `status` says how many
        came.

            >>> if hpccoll.rank() == 1:
            ...     hpccoll.send(np.full(2, 5), dest=0)
            ... else:
            ...     x = np.empty(2, np.int64)
            ...     assert hpccoll.recv(x) == 1 and (x == 5).all()

        :param x: a writable array, which takes the message; it has at least as many bytes as the message
        :param source: the rank, in this World, that sends; ANY_SOURCE takes a message from any rank, PROC_NULL none:
            then `x` keeps its values
        :param tag: a number from 0 to `2**32 - 1`: messages with this tag are received; ANY_TAG: with any, in the order
            in which a sender has sent them
        :param status: gets the sender, the tag and the size of the message
        :returns: the rank that sent the message
        :raises MismatchError: the message has another dtype than `x`; nothing was written. The text names both
        :raises ResultSizeError: the message is longer than `x`; nothing was written. The text names both sizes
        :raises InvalidArgumentError: `x` cannot be written, or `source` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        message = self.core.recv_now(x, source, tag)
        if status is not None:
            status.source, status.tag, status.nbytes = message
        return message[0]

    def recv_async(self, x: Array, source: int = ANY_SOURCE, *, tag: int = ANY_TAG) -> Handle[int]:
        """Begin a `recv`, with the same arguments but `status`; `wait()` returns the rank that sent.

        Then `Handle.peer`, `Handle.tag` and `Handle.nbytes` describe the message, and `Status.take(handle)` copies
        them.
        """
        return self.core.recv(x, source, tag)

    def sendrecv(
        self,
        x: Values,
        dest: int,
        out: Array,
        source: int = ANY_SOURCE,
        *,
        sendtag: int = 0,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> int:
        """Send one array and receive another, at once: rings and shifts of any length cannot deadlock.

            >>> rank, size = hpccoll.rank(), hpccoll.size()
            >>> left = np.empty(1, np.int64)
            >>> source = hpccoll.sendrecv(np.array([rank]), (rank + 1) % size, left, (rank - 1) % size)
            >>> assert source == left[0] == (rank - 1) % size

        :param x: is sent, as by `send`
        :param dest: the rank, in this World, that it goes to, or PROC_NULL
        :param out: takes what is received, as by `recv`. It shares no memory with `x`, unless `dest` or `source` is
            PROC_NULL, or one of the two arrays is not contiguous: that one is copied
        :param source: the rank, in this World, that it comes from, ANY_SOURCE or PROC_NULL
        :param sendtag: of the message sent
        :param recvtag: of the message received, or ANY_TAG
        :param status: gets the sender, the tag and the size of the message received
        :returns: the rank that sent what was received
        :raises MismatchError: the message has another dtype than `out`; nothing was written
        :raises ResultSizeError: the message is longer than `out`; nothing was written
        :raises InvalidArgumentError: an argument is wrong, or `x` and `out` share memory; nothing was sent
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        message = self.core.sendrecv(x, dest, sendtag, out, source, recvtag)
        if status is not None:
            status.source, status.tag, status.nbytes = message
        return message[0]

    # ---- messages that are there ----------------------------------------------------------------------------

    def probe(self, source: int = ANY_SOURCE, *, tag: int = ANY_TAG) -> Status:
        """Wait for a message that no receive has taken, and describe it. It stays: the next matching `recv` takes it.

            >>> if hpccoll.rank() == 0:
            ...     hpccoll.send(np.arange(5.0), dest=1)
            ... else:
            ...     status = hpccoll.probe(source=0)
            ...     x = np.empty(status.count(float))
            ...     assert hpccoll.recv(x, status.source, tag=status.tag) == 0 and x[4] == 4

        With several threads that receive, another one may take the message first.

        :param source: the rank, in this World, that sends; ANY_SOURCE: any; PROC_NULL: returns at once, without a
            message
        :param tag: a number from 0 to `2**32 - 1`; ANY_TAG: any
        :returns: its sender, tag and size
        :raises InvalidArgumentError: `source` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        status = Status()
        handle = self.core.probe(source, tag, False)
        handle.wait()
        status.take(handle)
        return status

    def iprobe(self, source: int = ANY_SOURCE, *, tag: int = ANY_TAG) -> Status | None:
        """Describe a message that no receive has taken, if one is there. Never waits for one.

            >>> assert hpccoll.iprobe(tag=77) is None

        :param source: as for `probe`
        :param tag: as for `probe`
        :returns: its sender, tag and size, or None. A message that was sent is there after some calls at the latest
        :raises InvalidArgumentError: `source` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        handle = self.core.probe(source, tag, True)
        if handle.wait() == ANY_SOURCE:
            return None
        status = Status()
        status.take(handle)
        return status

    # ---- Python objects -------------------------------------------------------------------------------------

    def send_object(self, obj: object, dest: int, *, tag: int = 0) -> None:
        """Send a Python object to one rank, which calls `recv_object`. It travels as pickle makes it.

            >>> if hpccoll.rank() == 0:
            ...     hpccoll.send_object({"step": 3}, dest=1)
            ... else:
            ...     assert hpccoll.recv_object(source=0) == {"step": 3}

        :param obj: the object
        :param dest: the rank, in this World, that receives; PROC_NULL: nothing is sent
        :param tag: a number from 0 to `2**32 - 1`
        :raises ObjectError: pickle refuses the object; the receiver gets the same error
        :raises InvalidArgumentError: `dest` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        objects.send(self.core, obj, dest, tag)

    def recv_object(
        self,
        source: int = ANY_SOURCE,
        *,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Receive a Python object that one rank sends with `send_object`. Receive only from programs that you trust.

        :param source: the rank, in this World, that sends, or ANY_SOURCE; PROC_NULL: returns None at once
        :param tag: a number from 0 to `2**32 - 1`, or ANY_TAG
        :param status: gets the sender, the tag and the size of the message
        :returns: a copy of the object
        :raises ObjectError: pickle refused the object on the rank that sent it, or this rank cannot unpickle it
        :raises InvalidArgumentError: `source` or `tag` is out of range
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        obj, handle = objects.receive(self.core, source, tag)
        if status is not None:
            status.take(handle)
        return obj

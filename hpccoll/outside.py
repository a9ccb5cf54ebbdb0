# SPDX-License-Identifier: Apache-2.0
"""The process set of an empty World, for a rank that is not in a subset; MPI's counterpart is MPI_COMM_NULL.

It takes the place of a member's `_core.Set`. Each of its operations raises the same error, so that no call of a rank
outside can match a call of the ranks inside.
"""

from collections.abc import Iterable
from functools import partialmethod
from typing import Any, NoReturn

from hpccoll import errors
from hpccoll.text import some_ranks

__all__ = ["Outside", "check_inside"]


class Outside:
    """A process set without ranks, on a rank that is not in the sets that others have."""

    rank = None
    size = 0
    members: tuple[int, ...] = ()
    closed = True
    """World.shutdown() and the end of the process skip this set, which has no resources."""

    def __init__(self, rank: int, others: Iterable[int]) -> None:
        """Note which ranks are inside, for the errors.

        :param rank: this rank, in the World that the sets were made from
        :param others: the ranks, in the same World, that have a set
        """
        inside = list(others)
        self.text = f"rank {rank} is not in it, {some_ranks(inside) if inside else 'and no other rank'}" + (
            f" {'are' if len(inside) > 1 else 'is'}" if inside else " is"
        )

    def refuse(self, operation: str) -> NoReturn:
        """Raise InvalidArgumentError in the name of an operation."""
        raise errors.InvalidArgumentError(
            f"{operation}: this World is empty here: {self.text} (numbers of the World that it was made from). Call "
            "its operations only on its ranks, such as under `if world:`"
        )

    def collective(self, operation: str, *_: Any, **__: Any) -> NoReturn:
        """Refuse an operation."""
        self.refuse(operation)

    blocking = blocking_rows = collective

    def plan_message(self, receives: bool, *_: Any) -> NoReturn:
        """Refuse a plan of messages."""
        self.refuse("recv_init" if receives else "send_init")

    send = send_now = partialmethod(collective, "send")
    recv = recv_now = partialmethod(collective, "recv")
    sendrecv = partialmethod(collective, "sendrecv")
    recv_bytes = partialmethod(collective, "recv_object")
    probe = partialmethod(collective, "probe")
    capsule = partialmethod(collective, "capsule")


def check_inside(own: object, operation: str) -> None:
    """Check that this rank is in the process set, for operations that read the set before they begin.

    :raises InvalidArgumentError: the process set is that of an empty World
    """
    if isinstance(own, Outside):
        own.refuse(operation)

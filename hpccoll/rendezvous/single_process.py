# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a single process."""

from typing import TypeVar

from hpccoll.rendezvous import codec
from hpccoll.rendezvous.protocol import ByAllgather

__all__ = ["SingleProcess"]

T = TypeVar("T")


class SingleProcess(ByAllgather):
    """See Rendezvous: one process, which never waits."""

    rank, size = 0, 1
    one_process = False

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        return [codec.decode(codec.encode(value))]

# SPDX-License-Identifier: Apache-2.0
"""What all rendezvous without MPI have in common, and the trivial one: of a process alone."""

from __future__ import annotations

from typing import Any

__all__ = ["SingleProcess", "WithoutMpi"]


class WithoutMpi:
    """What a Rendezvous answers where no MPI is: no net that sets limits, nobody to take along."""

    threads = False

    def thread_level(self) -> str:
        """See Rendezvous."""
        return "MULTIPLE"

    def library(self) -> str:
        """See Rendezvous."""
        return ""

    def describe_net(self) -> str:
        """See Rendezvous."""
        return "none"

    def give_up(self) -> None:
        """See Rendezvous: whoever is left sees that this process is gone, and nothing waits for it."""


class SingleProcess(WithoutMpi):
    """The rendezvous of one process."""

    rank, size = 0, 1

    def allgather(self, value: Any) -> list[Any]:
        """See Rendezvous."""
        return [value]

    def machine(self) -> Any:
        """See Rendezvous."""
        return 0

    def net(self, _machines: list[Any], /) -> Any:
        """See Rendezvous."""
        raise AssertionError("a World of one rank has no net")

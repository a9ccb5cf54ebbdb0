# SPDX-License-Identifier: Apache-2.0
"""What all meetings without MPI have in common, and the trivial one: of a process alone."""

from __future__ import annotations

from typing import Any

__all__ = ["Alone", "WithoutMpi"]


class WithoutMpi:
    """What a Meeting answers where no MPI is: no net that sets limits, nobody to take along."""

    threads = False

    def thread_level(self) -> str:
        """See Meeting."""
        return "MULTIPLE"

    def library(self) -> str:
        """See Meeting."""
        return ""

    def describe_net(self) -> str:
        """See Meeting."""
        return "none"

    def give_up(self) -> None:
        """See Meeting: whoever is left sees that this process is gone, and nothing waits for it."""


class Alone(WithoutMpi):
    """The meeting of one process."""

    rank, size = 0, 1

    def allgather(self, value: Any) -> list[Any]:
        """See Meeting."""
        return [value]

    def machine(self) -> Any:
        """See Meeting."""
        return 0

    def net(self, _machines: list[Any], /) -> Any:
        """See Meeting."""
        raise AssertionError("a World of one rank has no net")

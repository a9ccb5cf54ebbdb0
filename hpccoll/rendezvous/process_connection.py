# SPDX-License-Identifier: Apache-2.0
"""A connection that a process has at most once, made at the first call, and that a forked child does not share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

__all__ = ["ProcessConnection"]


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class ProcessConnection(Generic[C]):
    """The connection of this process to what a variable of its environment names; a module makes one of these."""

    def __init__(self, variable: str, connect: Callable[[Mapping[str, str]], C]) -> None:
        """Connect later.

        :param variable: where it is not set, there is no connection
        :param connect: connects, given the environment of the process
        """
        self.variable, self.connect = variable, connect
        self.made: C | None = None
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self, env: Mapping[str, str]) -> C | None:
        """Give the connection, which is made at the first call; None if the variable is not set.

        :param env: the environment of the process
        :raises StartError: the other end cannot be reached
        """
        if self.made is None and env.get(self.variable):
            self.made = self.connect(env)
        return self.made

    def _forget(self) -> None:
        """Close the child's copy: it would outlive the rank, whose connection it is."""
        if self.made is not None:
            self.made.close()
        self.made = None

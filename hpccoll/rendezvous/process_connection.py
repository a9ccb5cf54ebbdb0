# SPDX-License-Identifier: Apache-2.0
"""A connection that a process makes once, at the first call; a forked child does not share it."""

import os
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

__all__ = ["ProcessConnection"]


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class ProcessConnection(Generic[C]):
    """The connection of this process to the address in a variable of its environment; made once per module."""

    def __init__(self, variable: str, connect: Callable[[Mapping[str, str]], C]) -> None:
        """Store the arguments; the first call connects.

        :param variable: where it is not set, there is no connection
        :param connect: connects, given the environment of the process
        """
        self.variable, self.connect = variable, connect
        self.made: C | None = None
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self, env: Mapping[str, str]) -> C | None:
        """Return the connection, which the first call makes; None if the variable is not set.

        :param env: the environment of the process
        :raises StartError: the other end cannot be reached
        """
        if self.made is None and env.get(self.variable):
            self.made = self.connect(env)
        return self.made

    def _forget(self) -> None:
        """Close the copy of a forked child: it would keep the rank's connection open after the rank's end."""
        if self.made is not None:
            self.made.close()
        self.made = None

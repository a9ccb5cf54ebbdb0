# SPDX-License-Identifier: Apache-2.0
"""Horovod's exceptions.

A ValueError is what one rank can see by itself, a RuntimeError what happens among the ranks: see hpccoll.errors.
"""

from __future__ import annotations

from hpccoll.errors import RecoverableError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]

HorovodInternalError = RecoverableError
"""A rank or a transport is gone, the process is sound: what an elastic job recovers from, and nothing else."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """The ranks of the job are about to change: leave the training loop, then go on with the new ones."""

    def __init__(self, skip_sync: bool = False) -> None:
        """:param skip_sync: ranks only leave, so that nobody needs the state of another."""
        super().__init__("the ranks of the job are about to change")
        self.skip_sync = skip_sync

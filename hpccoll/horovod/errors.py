# SPDX-License-Identifier: Apache-2.0
"""Horovod's exceptions.

A ValueError reports what one rank can see by itself, a RuntimeError what happens between ranks: see hpccoll.errors.
"""

from __future__ import annotations

from hpccoll.errors import RecoverableError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]

HorovodInternalError = RecoverableError
"""A rank or the transport failed while this process is sound. An elastic job recovers from this error only."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """The ranks of the job are about to change. Leave the training loop, then go on with the new ranks."""

    def __init__(self, skip_sync: bool = False) -> None:
        """:param skip_sync: ranks only leave, so no rank needs another's state."""
        super().__init__("the ranks of the job are about to change")
        self.skip_sync = skip_sync

# SPDX-License-Identifier: Apache-2.0
"""The exception that ends a training loop for a planned change of the ranks, under Horovod's name."""

__all__ = ["HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """The ranks of the job are about to change. Leave the training loop, then go on with the new ranks."""

    def __init__(self, skip_sync: bool = False) -> None:
        """:param skip_sync: ranks only leave, so no rank needs another's state."""
        super().__init__("the ranks of the job are about to change")
        self.skip_sync = skip_sync

# SPDX-License-Identifier: Apache-2.0
"""Nets between ranks that are threads of one process."""

from hpccoll import _core
from hpccoll.net.net_provider import Drivers
from hpccoll.rendezvous import Rendezvous, ThreadRendezvous

__all__ = ["ThreadNet"]


class ThreadNet:
    """See NetProvider."""

    name = "threads"
    moves_device_memory = True

    def __init__(self, drivers: Drivers = Drivers.ANY) -> None:
        """Allow only these threads to drive the net, for tests."""
        self.may_drive = drivers

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        """See NetProvider."""
        can = rendezvous is None or isinstance(rendezvous, ThreadRendezvous)
        return "" if can else "the ranks are no threads of one process"

    def drivers(self) -> Drivers:
        """See NetProvider."""
        return self.may_drive

    def describe(self) -> str:
        """See NetProvider."""
        return "memory of this process"

    def library(self) -> str:
        """See NetProvider."""
        return ""

    def make(self, rendezvous: Rendezvous, *, one_machine: bool) -> object:  # noqa: ARG002
        """See NetProvider: rank 0 makes the nets of all ranks."""
        assert isinstance(rendezvous, ThreadRendezvous)
        made = _core.local_nets(rendezvous.size) if rendezvous.rank == 0 else []
        return rendezvous.share(made)[0][rendezvous.rank]

# SPDX-License-Identifier: Apache-2.0
"""Nets over UCX, which need no MPI: the ranks exchange addresses through any rendezvous."""

import secrets

from hpccoll import config, inherited
from hpccoll.net import ucx_libraries
from hpccoll.net.net_provider import Drivers
from hpccoll.rendezvous import Rendezvous, gather_bytes

__all__ = ["UcxNet"]


class UcxNet:
    """See NetProvider."""

    name = "ucx"
    moves_device_memory = False

    def __init__(self, settings: config.Config) -> None:
        """Take the knobs `ucx_library` and `interface`."""
        self.settings = settings
        self.description = ""
        """Library, file, transports and devices; set when the net is made."""

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        """See NetProvider: the library."""
        if rendezvous is not None and rendezvous.one_process:
            return "the ranks are threads of one process (HPCCOLL_NET=threads connects those)"
        return ucx_libraries.open_one(self.settings.ucx_library)

    def drivers(self) -> Drivers:
        """See NetProvider: any thread may call UCX, one at a time."""
        return Drivers.ANY

    def describe(self) -> str:
        """See NetProvider."""
        return self.description

    def library(self) -> str:
        """See NetProvider: with its file."""
        from hpccoll import _ucx

        version = _ucx.library_version()
        return f"UCX {version} ({_ucx.library_path()})" if version else ""

    def make(self, rendezvous: Rendezvous, *, one_machine: bool) -> object:  # noqa: ARG002
        """See NetProvider: a UCX context and worker for this net only.

        The message length does not depend on `one_machine`: UCX's shared memory does not report a lost peer, so
        connections inside a machine use the network interface, too.
        """
        from hpccoll import _ucx

        made, self.description = _ucx.net(
            gather_bytes(rendezvous),
            rendezvous.rank,
            rendezvous.size,
            self.settings.interface,
            "UCX_NET_DEVICES" in inherited.environment(),
            secrets.randbits(16),
        )
        return made

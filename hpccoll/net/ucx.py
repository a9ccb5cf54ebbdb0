# SPDX-License-Identifier: Apache-2.0
"""Nets over UCX, which need no MPI: the ranks exchange addresses through any rendezvous."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from hpccoll import config, inherited
from hpccoll.checks import names
from hpccoll.compared import Compared
from hpccoll.net import interfaces, ucx_libraries
from hpccoll.net.net_provider import Drivers
from hpccoll.rendezvous import Rendezvous, agreed

__all__ = ["UcxNet"]

DEVICES = "NET_DEVICES"


class UcxNet:
    """See NetProvider."""

    name = "ucx"
    moves_device_memory = False

    def __init__(self, settings: config.Config) -> None:
        """Take the knobs `ucx_library` and `interface`."""
        self.settings = settings
        self.used = ""
        """Transports and devices of the net, such as tcp/eth0; set when the net is made."""

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        """See NetProvider: the library."""
        if rendezvous is not None and rendezvous.one_process:
            return "the ranks are threads of one process (HPCCOLL_NET=threads connects those)"
        return ucx_libraries.open_one(self.settings.ucx_library)

    def drivers(self) -> Drivers:
        """See NetProvider: any thread may call UCX, one at a time."""
        return Drivers.ANY

    def describe(self) -> str:
        """See NetProvider: library, file, transports and devices."""
        chosen = inherited.environment().get(f"UCX_{DEVICES}")
        by_user = f" by UCX_{DEVICES}" if chosen else ""
        return f"{self.library()} on {self.used or 'no device'}{by_user}"

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

        look = self._look(rendezvous)

        def begin() -> Any:
            chosen = look()
            return _ucx.net(rendezvous.rank, rendezvous.size, {} if by_user else {DEVICES: chosen})

        by_user = f"UCX_{DEVICES}" in inherited.environment()
        made = agreed(rendezvous.compare, begin)
        self.used, has_rdma = _ucx.devices(made)
        mine: list[Any] = [_ucx.address(made).hex(), secrets.randbits(16), has_rdma]
        told = rendezvous.allgather(mine)
        known = [bytes.fromhex(address) for address, _, _ in told]
        all_rdma = all(rdma for _, _, rdma in told)
        agreed(rendezvous.compare, lambda: _ucx.meet(made, told[0][1], all_rdma, known))
        return made

    def _look(self, rendezvous: Rendezvous) -> Callable[[], str]:
        """Return a function that finds the interfaces that lead to the other hosts; all ranks call this together.

        Processes in one network namespace count as one host, also if they share no memory.
        """
        from hpccoll import _ucx

        seen: Compared[list[Any]] = rendezvous.compare([names.network(), interfaces.interfaces()])
        hosts: dict[str, Any] = dict(seen.values)
        mine = list(hosts).index(seen[rendezvous.rank][0])

        def look() -> str:
            chosen = _ucx.choose_interfaces(list(hosts.values()), mine, self.settings.interface)
            if not chosen:
                there = ", ".join(f"{device['name']} ({device['address']})" for device in seen[rendezvous.rank][1])
                wanted = self.settings.interface
                why = (
                    f"HPCCOLL_INTERFACE={wanted} is no interface here that is up"
                    if wanted
                    else ("no interface here leads to the other hosts: name one by HPCCOLL_INTERFACE")
                )
                raise RuntimeError(f"{why}; there are {there or 'none with an IPv4 address'}")
            return chosen if self.settings.interface else ",".join(filter(None, [chosen, _ucx.infiniband()]))

        return look

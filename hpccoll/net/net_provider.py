# SPDX-License-Identifier: Apache-2.0
"""The interface of every net provider."""

import enum
from typing import NamedTuple, Protocol

from hpccoll.rendezvous import Rendezvous

__all__ = ["Choice", "Drivers", "NetProvider"]


class Drivers(enum.Enum):
    """Which threads of a process may drive a net; never two of them at a time."""

    ANY = "a background thread may drive"
    CALLERS = "threads of the program alone may drive"
    MAKER = "the thread that made the World alone may drive"


class NetProvider(Protocol):
    """Makes the nets of one kind. Nothing but `make` communicates, and nothing but `make` is slow."""

    name: str
    """Its name in `HPCCOLL_NET`."""
    moves_device_memory: bool
    """Its nets accept addresses in GPU memory, if a proof for `library()` exists."""

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        """Say why these nets cannot connect the ranks of a rendezvous.

        :param rendezvous: None: say only whether this process could use such a net at all
        :returns: the reason, with the remedy in parentheses; "" if they can, as far as this rank knows
        """
        ...

    def drivers(self) -> Drivers:
        """Say which threads of this process may drive such a net."""
        ...

    def describe(self) -> str:
        """Describe the transport, in a few words for the line at the start."""
        ...

    def library(self) -> str:
        """Return name and version of the library below, to which proofs of GPU memory refer; "" without one."""
        ...

    def make(self, rendezvous: Rendezvous, *, one_machine: bool) -> object:
        """Make the net of this rank; all ranks of the rendezvous call this together.

        :param one_machine: all ranks run on one machine; the net may choose its message length by this
        :returns: a capsule "hpccoll.net": a pointer to a `struct hc_net_box` (ext/transport/net/net.h)
        :raises RuntimeError: it cannot be made, with the reason
        """
        ...


class Choice(NamedTuple):
    """The provider that was chosen for a World."""

    provider: NetProvider
    why: str
    """The reason of the choice, in a few words for the line at the start."""

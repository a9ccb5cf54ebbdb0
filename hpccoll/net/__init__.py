# SPDX-License-Identifier: Apache-2.0
"""Transport of bytes between nodes: the second of the three ports of a World.

A net provider makes the nets of one kind (`NetProvider`). `mpi.py`, `threads.py` and `ucx.py` are built in; another
package adds a provider by an entry point of the group `hpccoll.nets`. The knob `HPCCOLL_NET` names the provider of a
World, and `auto` leaves the choice to `choose()`.
"""

from hpccoll.net import mpi
from hpccoll.net.mpi import MpiNet
from hpccoll.net.net_provider import Choice, Drivers, NetProvider
from hpccoll.net.registry import check_name, choose, names, provider
from hpccoll.net.threads import ThreadNet
from hpccoll.net.ucx import UcxNet

__all__ = [
    "Choice",
    "Drivers",
    "MpiNet",
    "NetProvider",
    "ThreadNet",
    "UcxNet",
    "check_name",
    "choose",
    "mpi",
    "names",
    "provider",
]

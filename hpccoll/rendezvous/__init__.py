# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of the ranks of a future World: the first of the three ports of a World.

A rendezvous exchanges small values and reports which ranks share a machine. It does not use networks (see hpccoll.net).
`mpi.py` uses a communicator, `store.py` a key-value store, `coordinator.py` the launcher of an elastic job,
`pmix.py` the PMIx server of srun, `threads.py` serves threads of one process, and `single_process.py` a single
process.
"""

from hpccoll.rendezvous.coordinator import CoordinatedRendezvous
from hpccoll.rendezvous.mpi import MpiRendezvous
from hpccoll.rendezvous.pmix import PmixRendezvous
from hpccoll.rendezvous.protocol import Machine, Rendezvous, agreed, gather_bytes, raise_first
from hpccoll.rendezvous.single_process import SingleProcess
from hpccoll.rendezvous.store import Store, StoreRendezvous
from hpccoll.rendezvous.threads import ThreadGroup, ThreadRendezvous

__all__ = [
    "CoordinatedRendezvous",
    "Machine",
    "MpiRendezvous",
    "PmixRendezvous",
    "Rendezvous",
    "SingleProcess",
    "Store",
    "StoreRendezvous",
    "ThreadGroup",
    "ThreadRendezvous",
    "agreed",
    "gather_bytes",
    "raise_first",
]

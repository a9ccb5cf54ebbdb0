# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of ranks without MPI that srun, or another launcher with a PMIx server, has started.

ext/rendezvous/pmix.c speaks to the server, which accepts no process but the ranks of its job: the values need no
authentication. An exchange waits for all ranks of the job, for ever if one has died, so these exchanges are used only
to make a World.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from hpccoll import _core
from hpccoll.rendezvous import codec
from hpccoll.rendezvous.protocol import ByAllgather

__all__ = ["PmixRendezvous", "serves"]

T = TypeVar("T")


def serves(environment: Mapping[str, str]) -> bool:
    """Whether a PMIx server has started the process of this environment."""
    return "PMIX_RANK" in environment and "PMIX_NAMESPACE" in environment


class PmixRendezvous(ByAllgather):
    """See Rendezvous: all ranks of the job that this process is in."""

    one_process = False

    def __init__(
        self, watch: Callable[[], AbstractContextManager[object]], no_mpi: str, environment: Mapping[str, str]
    ) -> None:
        """Connect to the launcher.

        :param watch: makes a context for one exchange, which it ends if the exchange takes too long
        :param no_mpi: why the ranks do not use MPI
        :param environment: of the process
        :raises StartError: there is no libpmix, or the launcher's server does not answer it
        """
        self._watch, self._no_mpi = watch, no_mpi
        with watch():
            self.rank, self.size = _core.pmix_join(environment.get("PMIX_PREFIX"))

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        with self._watch():
            values: list[T] = codec.decode_all(_core.pmix_exchange(codec.encode(value), self.size))
        return values

    def machine(self) -> str:
        """See Rendezvous."""
        return _core.machine_name()

    def describe(self) -> str:
        """See Rendezvous."""
        return f"the ranks met through their launcher's PMIx, as mpi4py could not be loaded: {self._no_mpi}"

# SPDX-License-Identifier: Apache-2.0
"""What Horovod calls "built" and "enabled": which transports there are, and which one is used."""

from __future__ import annotations

from hpccoll import errors
from hpccoll.net import mpi
from hpccoll.rendezvous import MpiRendezvous
from hpccoll.world import current, is_initialized

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rocm_built",
]  # fmt: skip


def mpi_built() -> bool:
    """Whether the part that speaks MPI was built."""
    return mpi.is_built()


def mpi_enabled() -> bool:
    """Whether the ranks of the World meet through MPI."""
    return is_initialized() and isinstance(current().base.rendezvous, MpiRendezvous)


def mpi_threads_supported() -> bool:
    """Whether MPI allows calls from several threads (MPI_THREAD_MULTIPLE). ValueError if MPI is not used."""
    if not mpi_enabled():
        raise errors.InvalidArgumentError("the ranks of this World do not use MPI, or there is no World yet")
    return mpi.thread_level() == "MULTIPLE"


def nccl_built() -> int:
    """0: NCCL is no part of hpccoll, which opens it at run time (`hpccoll info` says whether it can)."""
    return 0


def gloo_built() -> bool:
    """False: there is no Gloo in hpccoll."""
    return False


def gloo_enabled() -> bool:
    """False: there is no Gloo in hpccoll."""
    return False


def ddl_built() -> bool:
    """False: there is no DDL in hpccoll."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL in hpccoll."""
    return False


def cuda_built() -> bool:
    """True: tensors in the memory of NVIDIA's GPUs are served. Their driver is opened at run time."""
    return True


def rocm_built() -> bool:
    """False: tensors in the memory of AMD's GPUs are not served."""
    return False

# SPDX-License-Identifier: Apache-2.0
"""Horovod's questions about transports: which are built, and which one is in use."""

from hpccoll import errors
from hpccoll.default_world import current, is_initialized
from hpccoll.net import mpi
from hpccoll.rendezvous import MpiRendezvous

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rocm_built",
]  # fmt: skip


def mpi_built() -> bool:
    """Return whether there is an MPI library that hpccoll can use; its MPI part is built always."""
    return not mpi.why_missing()


def mpi_enabled() -> bool:
    """Return whether the ranks of the World found each other through MPI."""
    return is_initialized() and isinstance(current().base.rendezvous, MpiRendezvous)


def mpi_threads_supported() -> bool:
    """Return whether MPI allows calls from several threads (MPI_THREAD_MULTIPLE).

    :raises InvalidArgumentError: (a ValueError) the ranks do not use MPI, or there is no World yet
    """
    if not mpi_enabled():
        raise errors.InvalidArgumentError("the ranks of this World do not use MPI, or there is no World yet")
    return mpi.thread_level() == "MULTIPLE"


def nccl_built() -> int:
    """Return 0: hpccoll is built without NCCL and opens it at run time (`hpccoll info` reports whether it can)."""
    return 0


def gloo_built() -> bool:
    """Return False: hpccoll does not contain Gloo."""
    return False


def gloo_enabled() -> bool:
    """Return False: hpccoll does not contain Gloo."""
    return False


def ddl_built() -> bool:
    """Return False: hpccoll does not contain DDL."""
    return False


def ccl_built() -> bool:
    """Return False: hpccoll does not contain oneCCL."""
    return False


def cuda_built() -> bool:
    """Return True: hpccoll serves tensors in the memory of NVIDIA's GPUs. It opens their driver at run time."""
    return True


def rocm_built() -> bool:
    """Return False: hpccoll does not serve tensors in the memory of AMD's GPUs."""
    return False

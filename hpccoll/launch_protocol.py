# SPDX-License-Identifier: Apache-2.0
"""What `hpccoll run` and the processes that it starts agree on: variables, the longest message, a new rank's place.

It imports nothing, so that the launcher does not import what only ranks need.
"""

from typing import NamedTuple

__all__ = ["COORDINATOR", "LAUNCHER", "LONGEST", "STORE", "WORKER", "Place"]

LAUNCHER = "_HPCCOLL_LAUNCHER"
"""The variable that holds the secret of the job and the addresses of `hpccoll run`, as hpccoll.channel writes them."""
STORE = "_HPCCOLL_STORE"
"""The variable that holds the secret and the addresses of the store of a job without MPI."""
COORDINATOR = "_HPCCOLL_COORDINATOR"
"""The variable that holds the secret and the addresses of the coordinator of an elastic job."""
WORKER = "_HPCCOLL_WORKER"
"""The variable that holds the number of the worker, which no other process of the job has."""
LONGEST = 256 << 20
"""Bytes of a message of the store or of the coordinator."""


class Place(NamedTuple):
    """The place of a new rank in the job, if all ranks that are being started come in and no other one is lost."""

    rank: int
    size: int
    local_rank: int
    """Its slot on its host."""
    local_size: int
    cross_rank: int
    """Its number among the ranks with its slot, one per host."""
    cross_size: int

# SPDX-License-Identifier: Apache-2.0
"""Who started this process, as which rank, and whether MPI agrees: read from the environment, before or without MPI."""

from hpccoll.detect.contradictions import contradiction, singleton_remedy, slurm_pmix_risk, tasks
from hpccoll.detect.hosts import Allocation
from hpccoll.detect.place import Place
from hpccoll.detect.search import allocation, place, places, started_by

__all__ = [
    "Allocation",
    "Place",
    "allocation",
    "contradiction",
    "place",
    "places",
    "singleton_remedy",
    "slurm_pmix_risk",
    "started_by",
    "tasks",
]

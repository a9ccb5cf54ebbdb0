# SPDX-License-Identifier: Apache-2.0
"""The launcher of this process, its rank from the launcher, and whether MPI agrees.

Read from the environment, before MPI starts or without it; `hpccoll.init()` uses it. Each launcher and scheduler is one
module in launchers/.
"""

from hpccoll.detect.hosts import Allocation
from hpccoll.detect.job_place import Place
from hpccoll.detect.search import allocation, job, place, places, started_by

__all__ = [
    "Allocation",
    "Place",
    "allocation",
    "job",
    "place",
    "places",
    "started_by",
]

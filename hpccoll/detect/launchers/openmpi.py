# SPDX-License-Identifier: Apache-2.0
"""mpirun of Open MPI 4 (ORTE) and 5 (PRRTE).

Source: "Environment variables set for MPI applications" of Open MPI's documentation; recorded.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 30


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its mpirun."""
    return read(
        "mpirun of Open MPI", env, rank="OMPI_COMM_WORLD_RANK", size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK", local_size="OMPI_COMM_WORLD_LOCAL_SIZE", node="PMIX_HOSTNAME",
        job=("PMIX_NAMESPACE",),
    )  # fmt: skip

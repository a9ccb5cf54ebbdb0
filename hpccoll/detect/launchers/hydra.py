# SPDX-License-Identifier: Apache-2.0
"""mpiexec of Hydra, as MPICH and Intel MPI bring it.

Source: recorded; the names are in MPICH's src/pm/hydra. MPI_LOCALRANKID tells it from other launchers with PMI.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 50


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its mpiexec."""
    if "MPI_LOCALRANKID" not in env:
        return None
    return read(
        "mpiexec of Hydra", env, rank="PMI_RANK", size="PMI_SIZE", local_rank="MPI_LOCALRANKID",
        local_size="MPI_LOCALNRANKS", node="PMI_HOSTNAME",
    )  # fmt: skip

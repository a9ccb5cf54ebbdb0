# SPDX-License-Identifier: Apache-2.0
"""PALS: mpiexec of HPE Cray EX under PBS, as on Aurora and Polaris.

Source: mpiexec(1) and the user guides of ALCF. Not recorded: no such machine was at hand. PALS sets PMI's variables,
too.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 40


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its mpiexec."""
    if "PALS_RANKID" not in env and "PALS_NRANKS" not in env:
        return None
    return read(
        "PALS mpiexec", env, rank="PALS_RANKID", size="PALS_NRANKS" if "PALS_NRANKS" in env else "PMI_SIZE",
        local_rank="PALS_LOCAL_RANKID", local_size="PMI_LOCAL_SIZE", node="PALS_NODEID", job=("PALS_APID",),
    )  # fmt: skip

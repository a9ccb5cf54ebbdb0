# SPDX-License-Identifier: Apache-2.0
"""jsrun: IBM's Job Step Manager, as on Summit and Sierra.

Source: IBM Spectrum LSF's documentation of jsrun; the variables of a rank on a machine like Sierra, shown in Trilinos'
pull request 5598. Not recorded: no such machine was at hand. Open MPI's variables are set as well, and say the same.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 20


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its jsrun."""
    return read(
        "jsrun", env, rank="JSM_NAMESPACE_RANK", size="JSM_NAMESPACE_SIZE", local_rank="JSM_NAMESPACE_LOCAL_RANK",
        local_size="JSM_NAMESPACE_LOCAL_SIZE", job=("LSB_JOBID", "JSM_NAMESPACE_ID"),
    )  # fmt: skip

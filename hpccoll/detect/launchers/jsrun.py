# SPDX-License-Identifier: Apache-2.0
"""jsrun: IBM's Job Step Manager, as on Summit and Sierra.

Source: IBM Spectrum LSF's documentation of jsrun; PyTorch Lightning's LSFEnvironment reads the same variables. Not
recorded: no such machine was at hand. Spectrum MPI sets Open MPI's variables as well, which say the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 20


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its jsrun."""
    return read(
        "jsrun", env, rank="JSM_NAMESPACE_RANK", size="JSM_NAMESPACE_SIZE", local_rank="JSM_NAMESPACE_LOCAL_RANK",
        local_size="JSM_NAMESPACE_LOCAL_SIZE", job=("LSB_JOBID", "JSM_NAMESPACE_ID"),
    )  # fmt: skip

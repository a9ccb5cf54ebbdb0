# SPDX-License-Identifier: Apache-2.0
"""PMI-1 and PMI-2 under a launcher whose own variables are not known here.

Source: Flux RFC 13, "Simple Process Manager Interface v1", which describes common practice; recorded.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 80


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its job."""
    return read("a PMI launcher", env, rank="PMI_RANK", size="PMI_SIZE", job=("PMI_JOBID",))

# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run` without an mpirun: our own launcher, on this machine and over ssh. Also ranks that Ray or Spark starts.

Source: hpccoll/tools/launch/direct/places.py; recorded.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 5


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its job."""
    return read(
        env.get("_HPCCOLL_STARTER", "hpccoll run"), env, rank="_HPCCOLL_RANK", size="_HPCCOLL_SIZE",
        local_rank="_HPCCOLL_LOCAL_RANK", local_size="_HPCCOLL_LOCAL_SIZE", node="_HPCCOLL_NODE", job=("_HPCCOLL_JOB",),
    )  # fmt: skip

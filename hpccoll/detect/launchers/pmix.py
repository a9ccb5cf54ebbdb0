# SPDX-License-Identifier: Apache-2.0
"""PMIx under a launcher whose own variables are not known here.

Its variables do not give the number of processes.

Source: PMIx Standard 5.0, "Environmental variables"; recorded.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 70


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its namespace."""
    return read("a PMIx launcher", env, rank="PMIX_RANK", node="PMIX_HOSTNAME", job=("PMIX_NAMESPACE",))

# SPDX-License-Identifier: Apache-2.0
"""PMIx, started by somebody whose own variables are not known here.

In the environment it does not say how many processes there are.

Source: PMIx Standard 5.0, "Environmental variables"; recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpccoll.detect.place import Place, read

ORDER = 70


def place(env: Mapping[str, str]) -> Place | None:
    """The process in its namespace."""
    return read("a PMIx launcher", env, rank="PMIX_RANK", node="PMIX_HOSTNAME", job=("PMIX_NAMESPACE",))

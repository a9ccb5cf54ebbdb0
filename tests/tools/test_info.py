# SPDX-License-Identifier: Apache-2.0
"""`hpccoll info` about the node."""

import pytest

from hpccoll.checks import cgroups
from hpccoll.tools import info
from hpccoll.tools.launch import installed


@pytest.mark.parametrize(
    ("granted", "said"), [(None, None), (4.0, None), (1.0, "that of 1 core ("), (1.5, "that of 1.5 cores (")]
)
def test_a_quota_below_the_cores_is_named(monkeypatch: pytest.MonkeyPatch, granted: float, said: str) -> None:
    """The start line of a job spoke of it, and `hpccoll info` did not."""
    monkeypatch.setattr(cgroups, "quota", lambda: granted)
    monkeypatch.setattr(installed, "cores", lambda: 4)
    here = info.node()
    assert here["cores for this process"] == 4
    assert here.get("CPU time for this process", "").startswith(said or "") and (
        "CPU time for this process" in here
    ) == bool(said)

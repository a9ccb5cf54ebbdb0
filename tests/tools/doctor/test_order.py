# SPDX-License-Identifier: Apache-2.0
"""The order of the nodes in the report."""

import pytest
from reports import report

from hpccoll import node_order
from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import examine


def test_the_order_of_the_nodes_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    order, asked = node_order.order, []
    monkeypatch.setattr(node_order, "order", lambda *given: asked.append(given) or order(*given))
    options = {"measure": False, "interfaces": [], "required": {}, "training": None}
    examine.summarize(Survey([report(0, 0), report(1, 1)], 2), options)
    assert len(asked) == 1

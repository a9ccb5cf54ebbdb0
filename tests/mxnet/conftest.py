# SPDX-License-Identifier: Apache-2.0
"""MXNet in this environment, or the tests are skipped: it needs NumPy before 2, which no other framework here wants."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def mxnet() -> None:
    pytest.importorskip("hpccoll.mxnet", reason="no MXNet", exc_type=ImportError)

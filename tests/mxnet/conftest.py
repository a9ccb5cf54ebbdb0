# SPDX-License-Identifier: Apache-2.0
"""Skips the tests without MXNet, which needs NumPy before 2, unlike all other frameworks here."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def mxnet() -> None:
    pytest.importorskip("hpccoll.mxnet", reason="no MXNet", exc_type=ImportError)

# SPDX-License-Identifier: Apache-2.0
"""The contract of a net, over a net that hpccoll does not bring."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_contract(build_c: Callable[..., Path], run_c: Callable[..., str], ranks: int) -> None:
    """With cancelled messages that are half moved, and a peer that is gone."""
    program = build_c(
        "tests/net_tcp/net_contract_tcp.c",
        "tests/net_tcp/net_tcp.c",
        "ext/transport/kernels/*.c",
        "ext/core/reserve.c",
        "ext/core/status.c",
    )
    assert "ok" in run_c(program, ranks)

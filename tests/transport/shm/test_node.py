# SPDX-License-Identifier: Apache-2.0
"""The contract of `hc_node`: random programs of all its operations, as threads and as processes."""

from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    "tests/transport/shm/node_contract.c",
    "ext/transport/shm/*.c",
    "ext/transport/kernels/*.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
)
SIZES = (1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow))


DIRECT = "-DHC__DIRECT_SUITS=1 -DHC__DIRECT_LEAST=30000"  # as on processors whose kernel copies fast


@pytest.fixture(scope="module")
def contract(build_c: Callable[..., Path]) -> Path:
    return build_c(*SOURCES)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_random_programs(run_c: Callable[..., str], contract: Path, mode: str, size: int) -> None:
    run_c(contract, mode, size, size, 25, timeout=100)


@pytest.fixture(scope="module")
def direct(build_c: Callable[..., Path]) -> Path:
    return build_c(*(f"{source} {DIRECT}" if "/shm/" in source else source for source in SOURCES))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "size"), [("threads", 2), ("processes", 2), ("processes", 4)])
def test_streams_read_where_they_lie(run_c: Callable[..., str], direct: Path, mode: str, size: int) -> None:
    run_c(direct, mode, size, size, 40, timeout=100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_with_delays(run_c: Callable[..., str], contract: Path, mode: str) -> None:
    run_c(contract, mode, 4, 99, 60, 1, timeout=100)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_many_random_programs(run_c: Callable[..., str], contract: Path, mode: str, seed: int) -> None:
    for size in range(2, 7):
        run_c(contract, mode, size, seed, 300, seed % 2, timeout=170)

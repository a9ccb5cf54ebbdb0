# SPDX-License-Identifier: Apache-2.0
"""One stand-in for LSF for the tests of this folder."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lsf_cluster import PROGRAMS, Cluster


@pytest.fixture(scope="session")
def running_lsf(
    tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None], build_c: Callable[..., Path]
) -> Iterator[Cluster]:
    needs(*PROGRAMS)
    cores = build_c("tests/lsf/cores.c", flags=("-shared",), name="cores.so")
    cluster = Cluster(tmp_path_factory.mktemp("lsf"), cores)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def lsf(running_lsf: Cluster) -> Iterator[Cluster]:
    """A stand-in whose hosts are idle at the start of each test."""
    yield running_lsf
    running_lsf.end_all()

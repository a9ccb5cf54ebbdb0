# SPDX-License-Identifier: Apache-2.0
"""One Slurm for the tests of this folder."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "images"))
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "install"))

from cluster import NODES, PROGRAMS, Cluster, missing


@pytest.fixture(scope="session")
def running_slurm(tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None]) -> Iterator[Cluster]:
    needs(*PROGRAMS)
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    folder.parent.chmod(0o755)
    cluster = Cluster(folder)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def slurm(running_slurm: Cluster) -> Iterator[Cluster]:
    """A Slurm whose nodes are all idle at the start of each test."""
    yield running_slurm
    running_slurm.run("scancel", "--user=root", "--hurry")
    running_slurm.wait_for("idle", *NODES)


@pytest.fixture
def this_python_first(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let submitted programs use the `python` and `hpccoll` of the tests."""
    monkeypatch.setitem(slurm.environment, "PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

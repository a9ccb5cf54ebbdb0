# SPDX-License-Identifier: Apache-2.0
"""srun without MPI: the ranks meet through Slurm's PMIx server, and UCX carries the data between the nodes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import ROOT, Cluster

pytestmark = pytest.mark.timeout(300)
TWICE = """
import sys, hpccoll, numpy
for _ in range(2):
    hpccoll.init()
    p, r = hpccoll.size(), hpccoll.rank()
    assert (hpccoll.allreduce(numpy.arange(100_000.0) + r) == p * numpy.arange(100_000.0) + p * (p - 1) // 2).all()
    assert hpccoll.allgather_object("x" * 10_000 * r) == ["x" * 10_000 * i for i in range(p)]
    assert "mpi4py.MPI" not in sys.modules
    print(f"<rank {r} of {p}>", flush=True)
    hpccoll.shutdown()
"""
ONE_IS_MISSING = """
import os, sys, time, hpccoll
if os.environ["PMIX_RANK"] == "2":
    time.sleep(60)
hpccoll.init()
"""


STEP = ("srun", "--mpi=pmix", "--kill-on-bad-exit", "-N2", "-n3", "--distribution=block")


@pytest.fixture
def srun(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words before a program of Python; mpi4py cannot be imported there."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')\n")
    monkeypatch.setitem(slurm.environment, "PYTHONPATH", f"{tmp_path}:{ROOT}")
    return [*STEP, sys.executable, "-P", "-c"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Random calls of C, without MPI."""
    installed = ROOT / "hpccoll"
    linking = [f"-I{ROOT}/ext", f"-L{installed}/lib", f"-Wl,-rpath,{installed}/lib", "-lhpccoll"]
    made, source = tmp_path / "program", ROOT / "tests" / "capi" / "program.c"
    subprocess.run(["cc", "-std=c11", "-O1", "-DWITHOUT_MPI", source, "-o", made, *linking], check=True)
    return made


def test_ranks_of_srun_meet_without_mpi(slurm: Cluster, srun: list[str]) -> None:
    """Also for a second World of the same processes."""
    _, output = slurm.run(*srun, TWICE)
    assert all(output.count(f"<rank {rank} of 3>") == 2 for rank in range(3)), output
    assert output.count("3 ranks on 2 nodes (2+1)") == 2, output
    assert re.search(r"between nodes UCX 1\.\S+", output), output
    why = "as mpi4py could not be loaded: there is no MPI here"
    assert f"the ranks met through their launcher's PMIx, {why}" in output, output


def test_a_program_of_c(slurm: Cluster, program: Path) -> None:
    _, output = slurm.run(*STEP, str(program), "3", "40")
    assert "fine\n" in output and "3 ranks on 2 nodes" in output, output
    assert re.search(r"between nodes UCX 1\.\S+", output), output
    assert "the ranks met through their launcher's PMIx" in output, output


def test_a_rank_of_c_that_does_not_come_is_an_error(
    slurm: Cluster, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(slurm.environment, "HPCCOLL_START_TIMEOUT", "2")
    late = f"if [ $PMIX_RANK = 2 ]; then sleep 60; fi; exec {program} 3 40"
    status, output = slurm.run(*STEP, "bash", "-c", late, check=False)
    assert status != 0
    assert "the World was not made: no word from some rank within 2 s (HPCCOLL_START_TIMEOUT)" in output, output


@pytest.mark.slow
def test_a_rank_that_does_not_come_ends_the_job(
    slurm: Cluster, srun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(slurm.environment, "HPCCOLL_START_TIMEOUT", "4")
    monkeypatch.setitem(slurm.environment, "HPCCOLL_STALL_WARNING", "1")
    status, output = slurm.run(*srun, ONE_IS_MISSING, check=False)
    assert status != 0
    assert "an exchange through PMIx has not returned after 1 s" in output, output
    assert "an exchange through PMIx has not returned after 4 s (HPCCOLL_START_TIMEOUT): this process ends" in output

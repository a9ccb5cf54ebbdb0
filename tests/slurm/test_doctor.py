# SPDX-License-Identifier: Apache-2.0
"""`srun ... hpccoll doctor`: through MPI, where every task is alone, and where MPI_Init hangs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
DOCTOR = (sys.executable, "-m", "hpccoll", "doctor")


def reports(output: str) -> list[dict[str, Any]]:
    """The JSON objects in it; Slurm and MPI may print around them."""
    found, decoder, at = [], json.JSONDecoder(), output.find("{\n")
    while at >= 0:
        report, end = decoder.raw_decode(output, at)
        found.append(report)
        at = output.find("{\n", end)
    return found


def test_through_mpi(slurm: Cluster, tmp_path: Path) -> None:
    words = ("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", *DOCTOR, "--json", "--meet", tmp_path)
    status, output = slurm.run(*words, check=False)
    (report,) = reports(output)
    assert status == 0, output
    assert report["ranks"] == 4
    assert report["system"]["launcher"] == "srun"
    assert len(report["nodes"]) == 2
    (link,) = report["links"]
    assert min(link["bandwidth"]) > 0
    assert {inside["ranks"] for inside in report["inside"]} == {2, 4}


def test_every_task_alone(slurm: Cluster) -> None:
    status, output = slurm.run("srun", "--mpi=none", "-N1", "-n2", *DOCTOR, "--json", check=False)
    assert status != 0
    found = [f for report in reports(output) for f in report["findings"] if f["check"] == "launcher"]
    assert found, output
    assert "srun started 2 tasks" in found[0]["seen"]
    assert "srun --mpi=list" in found[0]["remedy"]


def test_a_hang_in_mpi_init(slurm: Cluster, build_c: Callable[..., Path], tmp_path: Path) -> None:
    planted = build_c("tests/tools/doctor/hang.c", flags=("-shared",), name="hang.so")
    step = ("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=1", "env", f"LD_PRELOAD={planted}", *DOCTOR)
    status, output = slurm.run(*step, "--json", "--patience", 5, "--meet", tmp_path, check=False)
    assert status != 0
    (report,) = reports(output)
    (hang,) = [f for f in report["findings"] if f["check"] == "mpi"]
    assert "MPI_Init_thread has not returned after" in hang["seen"]
    assert "on ranks 0, 1 (h1, h2)" in hang["seen"]

# SPDX-License-Identifier: Apache-2.0
"""The scripts for containers run the main example in the image, with stand-ins for Apptainer and pyxis."""

import os
from pathlib import Path

import containers
import pytest
from cluster import ROOT, Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
IMAGES = {"apptainer": "hpccoll.sif", "pyxis": "./hpccoll.sqsh"}


@pytest.mark.parametrize("name", IMAGES)
def test_script_for_containers_runs_the_main_example(
    slurm: Cluster, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks on each of two nodes, which find each other through Slurm's PMIx server."""
    if why := containers.lacking("buildah", "mmdebstrap"):
        pytest.skip(why)
    text = (ROOT / "slurm" / f"{name}.sh").read_text()
    script = tmp_path / "job.sh"
    first, *rest = text.split(IMAGES[name])
    assert rest
    script.write_text(str(containers.unpacked("openmpi")).join([first, *rest]))
    monkeypatch.setitem(slurm.environment, "PATH", f"{containers.STAND_INS}:{os.environ['PATH']}")
    number = slurm.submit("--ntasks-per-node=2", script, "--epochs", 1, "--folder", tmp_path)
    (job,) = slurm.wait(number)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), slurm.output(number)
    assert "ranks 4, nodes 2: 14 steps" in slurm.output(number)
    assert "Debian OpenMPI" in slurm.output(number)


def test_the_image_with_mpich_starts_by_pmi2(slurm: Cluster, tmp_path: Path) -> None:
    """One task on each of two nodes."""
    if why := containers.lacking("buildah", "mmdebstrap"):
        pytest.skip(why)
    inside = [containers.STAND_INS / "apptainer", "exec", "--bind", ROOT, containers.unpacked("mpich")]
    train = ["python", "examples/digits/train.py", "--epochs", 1, "--folder", tmp_path]
    _, output = slurm.run("srun", "--mpi=pmi2", "--kill-on-bad-exit", "-N2", "-n2", *inside, *train, timeout=300)
    assert "ranks 2, nodes 2: 14 steps" in output, output
    assert "MPICH Version" in output and "started by srun (--mpi=pmi2)" in output, output

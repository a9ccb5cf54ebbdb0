# SPDX-License-Identifier: Apache-2.0
"""A study on a real Slurm, on 1, 2 and 4 nodes, weak and strong, with two arms; and one whose job was killed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster

from hpccoll.tools.bench import files
from hpccoll.tools.study import jobs, plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("this_python_first")]
STUDY = """
name = "s"
nodes = [1, 2, 4]
scaling = ["weak", "strong"]
repetitions = 1
site = "generic-cpu"
launcher = "mpirun"
oversubscribed = true
minutes = 5
[bench]
command = ["training", "--model", "even:1000:4", "--compute", "{size}", "--least", "6", "--most", "6", "--warmup", "1"]
size = 0.004
[arms.fp32]
[arms.fp16]
variables = { HPCCOLL_WIRE = "fp16" }
"""


def study(slurm: Cluster, *words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "hpccoll", "study", *map(str, words)]
    return subprocess.Popen(command, env=slurm.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def logs(folder: Path) -> str:
    return "".join(f"{log.name}:\n{log.read_text()}" for log in (folder / "s.study" / "logs").glob("*"))


def test_from_toml_to_report(slurm: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    out, _ = study(slurm, "run", file, "--poll", 0.5, "--report").communicate(timeout=500)
    found = files.read(tmp_path / "s.study" / "s.h5") if (tmp_path / "s.study" / "s.h5").exists() else None
    assert found, out + logs(tmp_path)
    assert len(found.launches) == 2 * 5, out + logs(tmp_path)  # weak and strong scaling have 1 node in common
    places = {(key.what.split(", ")[1], key.arm, key.nodes) for key in found.cases}
    assert places == {
        (f"{s} scaling", arm, n) for s in ("weak", "strong") for arm in ("fp32", "fp16") for n in (1, 2, 4)
    }
    numbers = {launch["job"] for launch in found.launches}
    assert len(numbers) == 5 and all(out.count(f"job {number}: ") == 1 for number in numbers)
    assert len({rank["host"] for launch in found.launches for rank in launch["placement"]}) == 4
    assert (tmp_path / "s.study" / "report.html").read_text().count("<svg") == 8


def test_a_study_whose_job_was_killed_is_resumed(slurm: Cluster, tmp_path: Path) -> None:
    """The job on 2 nodes is cancelled while it runs; the second run submits its runs alone."""
    file = tmp_path / "s.toml"
    text = (
        STUDY.replace("[1, 2, 4]", "[1, 2]")
        .replace('scaling = ["weak", "strong"]\n', "")
        .replace('launcher = "mpirun"\n', "")
    )  # by srun
    file.write_text(text.replace("size = 0.004", "size = 3"))
    first = study(slurm, "run", file, "--poll", 0.3)
    opened = plan.load(file)
    folder = plan.folder_of(file, opened)
    deadline = time.monotonic() + 200
    while not (there := [job for job in jobs.Book.open(folder).jobs if job.nodes == 2 and job.state == "running"]):
        assert time.monotonic() < deadline, logs(tmp_path)
        time.sleep(0.2)
    slurm.run("scancel", there[0].number)
    out, _ = first.communicate(timeout=300)
    assert first.returncode == 1 and "runs are missing" in out, out
    left = {run.stem for run in jobs.missing(opened, folder)}
    assert left and all(stem.startswith("weak-2-nodes") for stem in left), logs(tmp_path)
    file.write_text(file.read_text().replace("size = 3", "size = 0.004"))
    second = study(slurm, "run", file, "--poll", 0.3)
    out, _ = second.communicate(timeout=300)
    assert second.returncode == 0, out + logs(tmp_path)
    assert out.count("\njob ") + out.startswith("job ") == 1 and f"{len(left)} runs" in out

# SPDX-License-Identifier: Apache-2.0
"""The LSF scripts of slurm/ through the stand-in: the main example trains, and statuses come back."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from lsf_cluster import ROOT, Cluster
from resource_sets import parser, place

from hpccoll.tools.submit import script, site
from hpccoll.tools.submit.script import Request

pytestmark = pytest.mark.timeout(300)
LAUNCHERS = {"jsrun-cpu": "jsrun", "lsf-mpirun": "mpirun of Open MPI"}


def submitted(lsf: Cluster, text: str, folder: Path) -> str:
    """Submit a script as its machine takes it: as a file where there are launch nodes, else on standard input."""
    file = folder / "job.lsf"
    file.write_text(text)
    return lsf.submit(file, summit=True) if "-nnodes" in text else lsf.submit(script=text)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_script_runs_and_its_ranks_know_their_places(lsf: Cluster, tmp_path: Path, name: str) -> None:
    text = (ROOT / "slurm" / f"{name}.sh").read_text()
    assert text.count("examples/digits/train.py") == 2
    number = submitted(lsf, text.replace("examples/digits/train.py", "tests/lsf/small.py"), tmp_path)
    found, output = lsf.wait(number), lsf.output(number)
    assert found == [["DONE", "-", "1"]], output
    for rank, (host, local) in enumerate([("a01n01", 0), ("a01n01", 1), ("a01n02", 0), ("a01n02", 1)]):
        said = f"{LAUNCHERS[name]}, {rank} of 4, {local} of 2; a01n01 a01n02"
        assert f"<{rank} of 4 on {host} of 2: 10> <{said}>" in output, output
    assert re.search(rf"started by {LAUNCHERS[name]}, as .*, in LSF job {number} on 2 hosts", output), output


@pytest.mark.parametrize("name", ["summit", "generic-lsf"])
def test_the_status_of_a_rank_is_that_of_the_job(lsf: Cluster, tmp_path: Path, name: str) -> None:
    """A later launch of the same job still runs."""
    request = Request(("sh", "-c", "exit 5"), 2, 30, "j", gpus=False, account="A", tasks_per_node=1)
    number = submitted(lsf, script.render(site.load(name), request), tmp_path)
    assert lsf.wait(number) == [["EXIT", "5", "1"]], lsf.output(number)
    more = replace(request, command=("sh", "-c", "exit 6"), nodes=1, more=(("echo", "on"),))
    number = submitted(lsf, script.render(site.load(name), more), tmp_path)
    assert lsf.wait(number) == [["EXIT", "6", "1"]] and "on" in lsf.output(number).split(), lsf.output(number)


def test_run_takes_ranks_and_hosts_from_the_job(lsf: Cluster, tmp_path: Path) -> None:
    """`hpccoll run` without -np: a rank per slot. On a machine like Summit slots are cores, and jsrun starts ranks."""
    command = "hpccoll run --timeout 100 python tests/lsf/small.py\n"
    number = lsf.submit("-n", 2, "-R", "span[ptile=1]", script=command)
    assert lsf.wait(number) == [["DONE", "-", "1"]], lsf.output(number)
    assert f"2 ranks, one per slot of LSF job {number} on 2 hosts" in lsf.output(number)
    assert "<1 of 2 on a01n02 of 2: 3>" in lsf.output(number)
    number = submitted(lsf, f"#BSUB -nnodes 2\n{command}", tmp_path)
    assert lsf.wait(number) == [["EXIT", "2", "1"]], lsf.output(number)
    assert f"The slots of LSF job {number} on 2 hosts are cores: give -np, or start with jsrun" in lsf.output(number)


@pytest.mark.parametrize("name", ["jsrun", "jsrun-requeue"])
def test_a_script_for_gpus_fills_its_nodes(name: str) -> None:
    """Too large to run here: on each of 64 nodes a rank per GPU, which together have all cores."""
    text = (ROOT / "slurm" / f"{name}.sh").read_text().replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("jsrun"))
    tasks = place(parser().parse_args(line.split()[1:]), [f"h{i}" for i in range(64)])
    assert [task.gpus for task in tasks] == [(gpu,) for gpu in range(6)] * 64
    assert [core for task in tasks for core in task.cores] == list(range(42)) * 64

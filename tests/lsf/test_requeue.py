# SPDX-License-Identifier: Apache-2.0
"""The run limit of an LSF job that can be requeued: the ranks save, the job goes back to the queue, and goes on."""

import sys
from pathlib import Path

import pytest
from lsf_cluster import ROOT, Cluster, until

sys.path.insert(0, str(ROOT / "slurm"))

from render import rendered

pytestmark = pytest.mark.timeout(300)
PROGRAM = "examples/digits/train.py --checkpoint train.h5"
SITES = {
    "summit": "--site summit --nodes 2 --no-gpus --tasks-per-node 1 --account A --requeue --time 0:30",
    "generic-lsf": "--site generic-lsf --nodes 2 --tasks-per-node 1 --requeue --time 0:30",
}


@pytest.mark.parametrize(("name", "path"), [("summit", ""), ("generic-lsf", "/usr/bin:/bin")])
def test_the_run_limit(lsf: Cluster, tmp_path: Path, name: str, path: str) -> None:
    """Rank 0 asks brequeue, or if its node has none, status 99 (-Q) puts the job back."""
    steps, file = tmp_path / "steps", tmp_path / "job.lsf"
    program = f"tests/lsf/small.py 1000000 {steps} {path}"
    text = rendered(SITES[name]).replace(PROGRAM, program)
    file.write_text(text)
    number = lsf.submit(file, summit=True) if name == "summit" else lsf.submit(script=text)
    until(steps.exists, "the first step")
    waiting = lsf.submit("-n", 2, "-R", "span[ptile=1]", "sleep", 600)  # runs before the requeued job
    lsf.run("bmod", "-W", 2, number)  # the warning, two minutes before it, is due now
    until(lambda: lsf.show(waiting)[0][0] == "RUN", lsf.output(number))
    output, reached = lsf.output(number), steps.stat().st_size
    assert output.count(f"<stopped after {reached}>") == 2, output
    assert (f"`brequeue {number}` cannot be run" in output) == bool(path), output
    ((state, status, runs),) = lsf.show(number)
    assert (state, runs) == ("PEND", "1") and (status == "99") == bool(path), status  # brequeue: killed by SIGINT
    lsf.run("bmod", "-W", 30, number)
    lsf.run("bkill", waiting)
    until(lambda: steps.stat().st_size > reached, "the next run to come further")
    until(lambda: lsf.output(number).count("2 ranks on 2 nodes") == 2, "the start line of the next run")
    lsf.run("bkill", number)  # the ranks get SIGTERM, save and stop, but do not bring back what was killed
    assert lsf.wait(number)[0][::2] == ["EXIT", "2"], lsf.output(number)


def test_the_run_limit_without_a_warning(lsf: Cluster, tmp_path: Path) -> None:
    """LSF sends SIGUSR2 then, and leaves the job ten minutes: script and ranks live until the ranks have saved."""
    steps, file = tmp_path / "steps", tmp_path / "job.lsf"
    text = rendered(SITES["summit"].replace("--requeue ", ""))
    file.write_text(text.replace("examples/digits/train.py", f"tests/lsf/small.py 1000000 {steps} /usr/bin:/bin"))
    number = lsf.submit(file, summit=True)
    until(steps.exists, "the first step")
    lsf.run("bmod", "-W", 0, number)
    found, output = lsf.wait(number), lsf.output(number)
    assert "all ranks stop after this step: SIGUSR2" in output, output
    assert output.count(f"<stopped after {steps.stat().st_size}>") == 2 and found == [["DONE", "-", "1"]], output


@pytest.mark.slow
@pytest.mark.parametrize("name", SITES)
def test_a_node_dies(lsf: Cluster, tmp_path: Path, name: str) -> None:
    """`-r` runs the job again, and it goes on where it was."""
    steps, file = tmp_path / "steps", tmp_path / "job.lsf"
    text = rendered(SITES[name]).replace(PROGRAM, f"tests/lsf/small.py 60 {steps}")
    file.write_text(text)
    number = lsf.submit(file, summit=True) if name == "summit" else lsf.submit(script=text)
    until(steps.exists, "the first step")
    lsf.run("crash", "a01n02")
    assert lsf.wait(number) == [["DONE", "-", "2"]], lsf.output(number)
    assert steps.stat().st_size == 60

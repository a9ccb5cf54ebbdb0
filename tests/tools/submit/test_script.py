# SPDX-License-Identifier: Apache-2.0
"""Job scripts: those in slurm/ are what the templates give today, and the sizes in them add up."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.tools.lint import check, jsrun
from hpccoll.tools.lint.jsrun import SUMMIT, fit, fit_in_sockets
from hpccoll.tools.lint.script import read
from hpccoll.tools.submit import script
from hpccoll.tools.submit.layout import RequestError, lay_out
from hpccoll.tools.submit.script import Request
from hpccoll.tools.submit.site import SCHEDULERS, load, names

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = sorted(ROOT.glob("slurm/*.sh"))
JOB = Request(command=("python", "train.py", "--lr", "0.1"), nodes=4, minutes=120, name="train")


def test_scripts_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "slurm" / "render.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: python slurm/render.py"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_is_sound(path: Path) -> None:
    text = path.read_text()
    assert check(text) == []
    assert len(text.splitlines()) < 40 and max(map(len, text.splitlines())) < 160
    subprocess.run(["bash", "-n", path], check=True, timeout=10)


def test_values_of_a_site_stay_words(tmp_path: Path) -> None:
    """The script runs here, with programs that print their arguments in place of `module` and `srun`."""
    for program in ("module", "srun"):
        file = tmp_path / program
        file.write_text(f'#!/bin/sh\necho {program}\nprintf "<%s>\\n" "$@"\necho "A is $A"\n')
        file.chmod(0o700)
    words = ["two words", "$(touch made)", "`touch made`", "a;touch made", "'\""]
    site = replace(
        load("generic-gpu"), modules=words, mpi=words[1], gpu_container=words[3], environment={"A": words[2]},
    )  # fmt: skip
    text = script.render(site, replace(JOB, container="image.sif"))
    done = subprocess.run(
        ["bash"], input=text, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_PER_TASK": "1"},
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    loaded, started = done.stdout.split("srun\n")
    assert loaded.splitlines()[:7] == ["module", "<load>", *(f"<{word}>" for word in words)]
    assert f"<--mpi={words[1]}>" in started and f"<{words[3]}>" in started and f"A is {words[2]}" in started
    assert not (tmp_path / "made").exists()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(names()),
    st.integers(1, 4608),
    st.integers(3, 8 * 60),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
    st.sampled_from(["", "image.sif", "docker://a b"]),
    st.booleans(),
)
def test_the_linter_accepts_the_script_of_any_request(
    name: str, nodes: int, minutes: int, gpus: bool, requeue: bool, repeat: int, container: str, mpirun: bool
) -> None:
    site = load(name)
    request = Request(
        JOB.command, nodes, minutes, "train", gpus=gpus, requeue=requeue, repeat=repeat, container=container,
        launcher="mpirun" if mpirun else "", account="ABC",
    )  # fmt: skip
    text = script.render(site, request)
    assert check(text) == []
    launch, *_ = read(text).launches  # with --requeue srun asks the nodes afterwards
    before = ("apptainer", "exec", "--bind", "$PWD", container) if container else ()
    assert tuple(w for w in launch.words if w not in ("--nv", "--rocm"))[-5 - len(before) :] == (
        *before, "python", "train.py", "--lr", "0.1", "$@",
    )  # fmt: skip


@pytest.mark.parametrize(("nodes", "gpus"), [(1, True), (64, True), (4608, True), (3, False)])
def test_resource_sets_fill_summit(nodes: int, gpus: bool) -> None:
    """Every core and GPU of every node is used, and no set spans sockets."""
    request = Request(JOB.command, nodes, 60, "train", gpus=gpus, account="ABC")
    (launch,) = read(script.render(load("summit"), request)).launches
    sets, _, wrong = jsrun.read(launch.words)
    assert not wrong
    assert sets.per_host == fit(sets, SUMMIT) == fit_in_sockets(sets, SUMMIT) == (6 if gpus else 2)
    assert sets.sets == nodes * sets.per_host
    assert sets.per_host * sets.cores == SUMMIT.cores and sets.tasks * (sets.bind or 0) == sets.cores
    assert sets.per_host * sets.gpus == (SUMMIT.gpus if gpus else 0)


@pytest.mark.parametrize(
    ("name", "gpus", "tasks", "cores", "cpus", "bind"),
    [
        ("generic-cpu", True, 2, 32, 32, "--distribution=block:block --cpu-bind=cores"),
        ("generic-gpu", True, 4, 16, 16, "--distribution=block:block --cpu-bind=cores"),
        ("generic-gpu", False, 2, 32, 32, "--distribution=block:block --cpu-bind=cores"),
        ("perlmutter", True, 4, 16, 32, "--cpu-bind=map_ldom:3,2,1,0"),
        ("frontier", True, 8, 7, 7, "--gpus-per-task=1 --gpu-bind=closest --cpu-bind=cores"),
    ],
)
def test_layout_and_binding(name: str, gpus: bool, tasks: int, cores: int, cpus: int, bind: str) -> None:
    site = load(name)
    layout = lay_out(site, gpus=gpus)
    assert (layout.tasks, layout.cores, layout.cpus, script.bind(site, layout)) == (tasks, cores, cpus, bind)


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("name", ["summit", "generic-lsf"])
def test_an_lsf_script_survives_the_signal_at_its_limit(name: str, requeue: bool) -> None:
    """SIGUSR2, ten minutes before the job is killed (IBM, bsub -W), reaches the script, too."""
    text = script.render(load(name), replace(JOB, requeue=requeue, account="A"))
    (trap,) = [line for line in text.splitlines() if line.startswith("trap ")]
    ended = subprocess.run(["bash", "-c", f"{trap}\nkill -USR2 $$\nexit 7"], timeout=10, check=False)
    assert ended.returncode == 7


@pytest.mark.parametrize(
    ("tasks", "options"),
    [
        (1, "ppr:1:node --bind-to none"),
        (2, "ppr:2:node:PE=32 --bind-to core"),
        (3, "ppr:3:node --bind-to none"),
        (4, "ppr:4:node:PE=16 --bind-to core"),
        (64, "ppr:64:node:PE=1 --bind-to core"),
    ],
)
def test_mpirun_binds_within_sockets(tasks: int, options: str) -> None:
    """Two sockets of 32 cores: Open MPI 5 refuses to bind a rank to both (tests/lsf shows its mpirun)."""
    text = script.render(load("generic-lsf"), replace(JOB, tasks_per_node=tasks))
    assert f"--map-by {options} \\\n" in text


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("generic-gpu", {"tasks_per_node": 5}, "5 tasks per node, but a node of generic-gpu has 4 GPUs"),
        ("generic-cpu", {"tasks_per_node": 65}, "65 tasks per node, but a node of generic-cpu has 64 cores"),
        ("generic-cpu", {"nodes": 0}, "0 nodes"),
        (
            "generic-cpu",
            {"launcher": "jsrun"},
            "--launcher jsrun: generic-cpu has slurm, where it is srun or mpirun",
        ),
        ("summit", {"runtime": "pyxis", "container": "x"}, "Pyxis is a part of srun"),
        ("generic-cpu", {"requeue": True, "minutes": 2}, "--requeue warns 120 s before the time limit"),
        ("summit", {"min_nodes": 1}, "--min-nodes: summit has lsf; elastic jobs are for Slurm"),
        ("generic-cpu", {"min_nodes": 9, "nodes": 8}, "needs 1 <= min <= nodes"),
        ("generic-cpu", {"min_nodes": 1, "repeat": 2}, "--min-nodes goes without"),
        ("generic-cpu", {"spare_nodes": 1}, "--spare-nodes without --min-nodes"),
    ],
)
def test_what_a_site_cannot_do_is_refused(name: str, change: dict[str, object], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        script.render(load(name), replace(JOB, **change))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("requeue", [False, True])
def test_every_launcher_of_a_scheduler_has_a_template(name: str, requeue: bool) -> None:
    site = load(name)
    for launcher in SCHEDULERS[site.scheduler]:
        text = script.render(site, Request(JOB.command, 2, 60, "train", launcher=launcher, requeue=requeue))
        assert read(text).launches[0].launcher == launcher

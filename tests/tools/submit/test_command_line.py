# SPDX-License-Identifier: Apache-2.0
"""`hpccoll submit` as a user types it."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from hpccoll.__main__ import main
from hpccoll.tools.submit.cli import default_name, minutes, missing_program, node_counts, program
from hpccoll.tools.submit.layout import RequestError
from hpccoll.tools.submit.script import Request


def submit(line: str, **variables: str) -> tuple[int, str, str]:
    """The command in this process, which costs less than one of its own (test_words_of_the_program_stay_words)."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["hpccoll", "submit", *line.split()])
        for name, value in variables.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
    return int(ended.value.code or 0), output.getvalue(), errors.getvalue()


def test_dry_run_prints_the_script() -> None:
    status, output, errors = submit("--site summit --nodes 64 --time 2:00 --dry-run train.py --lr 0.1")
    assert status == 0
    assert "#BSUB -nnodes 64\n#BSUB -W 2:00\n" in output
    assert "--nrs 384 --rs_per_host 6" in output and 'python train.py --lr 0.1 "$@"' in output
    assert output.splitlines()[1] == "# hpccoll submit --site summit --nodes 64 --time 2:00 train.py --lr 0.1"
    assert "jobs on summit name a project: --account PROJECT" in errors
    assert "whether a job may have 64 nodes was not checked: LSF is not asked" in errors


def test_a_dry_run_of_the_programs_own_stays() -> None:
    _, output, _ = submit("--site generic-cpu --dry-run train.py --dry-run")
    assert output.splitlines()[1] == "# hpccoll submit --site generic-cpu train.py --dry-run"
    assert 'python train.py --dry-run "$@"' in output


def test_words_of_the_program_stay_words(tmp_path: Path) -> None:
    """Arguments with blanks and line breaks leave the script's own lines as they are."""
    (tmp_path / "my train.py").touch()
    words = ["my train.py", "--text", "two\nlines", "$HOME", "-- -x", "it's"]
    command = [sys.executable, "-m", "hpccoll", "submit", "--site", "generic-cpu", "--dry-run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "whether a job may have 1 node" in done.stderr
    assert "#SBATCH --job-name=my-train\n" in done.stdout
    (tmp_path / "srun").write_text('#!/bin/sh\nwhile [ "$1" != python ]; do shift; done\nprintf "%s\\0" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-s", "last one"], input=done.stdout, env=environment, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert ran.stdout.split("\0")[:-1] == ["python", *words, "last one"]


def test_a_program_that_is_not_here_is_said() -> None:
    """The script is written all the same, because it may be for another machine."""
    status, output, errors = submit("--site generic-cpu --dry-run nowhere/train.py --lr 0.1")
    assert status == 0 and 'python nowhere/train.py --lr 0.1 "$@"' in output
    assert f"hpccoll submit: there is no nowhere/train.py in {Path.cwd()}, where the job will start\n" in errors


@pytest.mark.parametrize(
    ("command", "container", "missing"),
    [
        ("python train.py", "", "train.py"),
        ("python here.py", "", ""),
        ("torchrun --nproc_per_node 4 train.py", "", "train.py"),
        ("./solver input.nml", "", "./solver"),
        ("solver input.nml", "", ""),  # from a module, perhaps
        ("python -m my.training", "", ""),
        ("python /opt/train.py", "image.sif", ""),
        ("python train.py", "image.sif", "train.py"),  # the image sees the current folder
    ],
)
def test_which_program_is_looked_for(
    command: str, container: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").touch()
    assert missing_program(Request(tuple(command.split()), 1, 60, "x", container=container)) == missing


def test_several_node_counts_are_several_jobs() -> None:
    _, output, _ = submit("--site generic-cpu --nodes 1,2,4 --repeat 3 --dry-run train.py")
    assert [line for line in output.splitlines() if "--nodes=" in line] == [f"#SBATCH --nodes={n}" for n in (1, 2, 4)]
    assert output.count("#SBATCH --array=1-3%1") == 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--dry-run train.py", "which site? --site "),
        ("--site moon train.py", "no site 'moon'"),
        ("--site summit", "which program?"),
        ("--site summit --time soon train.py", "--time soon: minutes, H:MM or H:MM:SS"),
        ("--site summit --nodes few train.py", "--nodes few: a number"),
        ("--site summit --time 2:75 train.py", "--time 2:75: minutes, H:MM or H:MM:SS"),
        ("--site summit --time \u00b2 train.py", "--time \u00b2: minutes"),
        ("--site summit --nodes \u00b2 train.py", "--nodes \u00b2: a number"),
        ("--site summit --nodes 0 train.py", "--nodes 0: a number"),
        ("--site generic-gpu --tasks-per-node 9 train.py", "has 4 GPUs"),
        ("--site generic-gpu --tasks-per-node 0 train.py", "0 tasks per node: at least 1"),
        ("--site generic-gpu --name a,b train.py", "--name 'a,b': letters, digits"),
        ("--site generic-gpu --account a;b train.py", "--account 'a;b': letters, digits"),
        ("--site generic-gpu --runtime pyxis train.py", "--container IMAGE"),
        ("--site generic-cpu train.py --dry-run", "--dry-run behind train.py is an option of train.py"),
    ],
)
def test_refusals(line: str, says: str) -> None:
    status, output, errors = submit(line)
    assert status == 2 and output == ""
    assert errors.startswith("hpccoll submit: ") and says in errors


def test_no_scheduler_here(tmp_path: Path) -> None:
    status, _, errors = submit("--site summit --account A train.py", PATH=str(tmp_path))
    assert status == 2 and "no bsub on PATH: log in to summit, or --dry-run" in errors


@pytest.mark.parametrize(("name", "words"), [("summit", 1), ("generic-lsf", 0)])
def test_bsub_gets_the_script_as_its_site_takes_it(name: str, words: int, tmp_path: Path) -> None:
    """`bsub < myjob.lsf` "is not needed (and will not work) on Summit" (Summit User Guide, "Batch Scripts")."""
    (tmp_path / "bsub").write_text(f'#!/bin/sh\n{{ echo $#; cat "$@"; }} > {tmp_path}/got\n')
    (tmp_path / "bsub").chmod(0o755)
    line = f"--site {name} --account A --no-gpus true"
    status, output, errors = submit(line, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert status == 0 and (tmp_path / "got").read_text() == f"{words}\n{output}", errors
    assert ("Submit with: bsub < FILE\n" in output) == (words == 0)


@pytest.mark.parametrize(
    ("sinfo", "status", "says"),
    [
        (None, 0, "whether a job may have 50 nodes was not checked: there is no sinfo on PATH"),
        ("echo no controller >&2; exit 1", 0, "was not checked: sinfo failed (no controller)"),
        ("echo 'other|99|1-infinite'", 0, "was not checked: sinfo names no default partition"),
        ("echo 'main*|50|1-infinite'", 0, ""),
        ("echo 'other|99|1-infinite'; echo 'main*|4|1-infinite'", 2, "50 nodes, and a job in the partition main has 4"),
        ("echo 'main*|99|1-3'", 2, "50 nodes, and a job in the partition main has 3 at most (sinfo): --nodes 3, or"),
    ],
)
def test_a_dry_run_compares_the_nodes_with_the_partition(
    sinfo: str | None, status: int, says: str, tmp_path: Path
) -> None:
    """It prints the script in any case, which may be for another machine; tests/slurm asks a real Slurm."""
    if sinfo is not None:
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\n{sinfo}\n")
        (tmp_path / "sinfo").chmod(0o755)
    done, output, errors = submit("--site generic-cpu --nodes 50 --dry-run true", PATH=str(tmp_path))
    assert done == status and "#SBATCH --nodes=50\n" in output
    assert says in errors and (says or not errors), errors


def test_the_job_runs_with_the_python_that_submits() -> None:
    """sbatch and bsub pass PATH to the job; if `python` is another one there, the script sets PATH."""
    own, line = Path(sys.prefix, "bin"), "--site generic-cpu --dry-run train.py"
    _, output, _ = submit(line, PATH=f"{own}:/usr/bin:/bin")
    assert "PATH" not in output
    _, output, _ = submit(line, PATH="/usr/bin:/bin")
    assert f"export PATH={own}:$PATH\n" in output


def test_sites_are_listed_with_what_is_not_known() -> None:
    status, output, _ = submit("--sites")
    assert status == 0
    assert "summit: Summit, Oak Ridge (historical: decommissioned in November 2024)" in output
    assert "note: nothing of this profile was run there" in output


def test_words() -> None:
    assert [minutes(text) for text in ("90", "2:00", "0:30", "1:00:30", "24:00:00")] == [
        90,
        120,
        30,
        61,
        1440,
    ]
    assert node_counts("1,2,16") == [1, 2, 16]
    assert program(["--", "train.py"]) == ("python", "train.py")
    assert program(["./solver", "x"]) == ("./solver", "x")
    names = {"python train.py": "train", "python -m hpccoll doctor": "hpccoll", "./solver -m": "solver"}
    assert {words: default_name(tuple(words.split())) for words in names} == names
    for wrong in ("1,,2", "1,1", "\u0662", "0"):  # Arabic-Indic 2
        with pytest.raises(RequestError, match=f"--nodes {wrong}: a number"):
            node_counts(wrong)
    for wrong in ("\u0662:00", "1:60", "1h", "9" * 5000):
        with pytest.raises(RequestError, match="minutes, H:MM or H:MM:SS"):
            minutes(wrong)

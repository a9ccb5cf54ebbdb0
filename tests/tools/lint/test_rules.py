# SPDX-License-Identifier: Apache-2.0
"""Each rule finds its fault where it is, and says nothing about a script without it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.tools.lint import RULES, check
from hpccoll.tools.lint.slurm import time_limit

ROOT = Path(__file__).resolve().parents[3]
SLURM = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=1:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
set -e
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --mpi=pmix --kill-on-bad-exit=1 python train.py
"""
TRAP = "trap 'kill -USR1 $!' USR1\n"
JSRUN = "jsrun -n 24 -r 6 -a 1 -c 7 -g 1 -b packed:7 -X 1 python train.py"
LSF = f"""\
#!/bin/bash
#BSUB -nnodes 4
#BSUB -W 2:00
#BSUB -o out.%J
#BSUB -alloc_flags "smt4"
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q 99
trap : USR1
export OMP_NUM_THREADS=7
{JSRUN}
"""
ANY = {  # for both schedulers; the scripts are alike in these places
    "line-ends-of-dos": [("#!/bin/bash\n", "#!/bin/bash\r\n", 1)],
    "shell-syntax": [
        ("#!/bin/bash\n", "#!/bin/bash\nNAME='of my model\n", 2),
        ("#!/bin/bash\n", "#!/usr/bin/env bash\necho it's\n", 2),
        ("#!/bin/bash\n", "#!/bin/bash\nls (all)\n", 2),
    ],
}
FAULTS = {  # rule -> scripts with that fault: (what is taken out, what is put in, line)
    "slurm": {
        **ANY,
        "unknown-option": [
            ("--cpus-per-task", "--cpu-per-tasks", 4),
            ("--kill-on-bad-exit=1", "--kill-bad-exit", 13),
            ("--time=1:00:00", "--time=1:00:00 --nodes", 6),
            ("--time=1:00:00", "time=1:00:00", 6),
        ],
        "no-interpreter": [("#!/bin/bash\n", "", 1)],
        "only-a-comment": [
            ("#SBATCH --nodes=2", "# SBATCH --nodes=2", 2),
            ("#SBATCH --nodes=2", "  #SBATCH --nodes=2", 2),
        ],
        "late-directive": [("set -e\n", "set -e\n#SBATCH --mem=4G\n", 11)],
        "no-time-limit": [("#SBATCH --time=1:00:00\n", "", 2)],
        "time-limit-form": [("1:00:00", "soon", 6), ("1:00:00", "1h", 6)],
        "minutes-not-hours": [("1:00:00", "1:00", 6)],
        "task-count": [("--time=", "--ntasks=9 --time=", 6)],
        "step-larger-than-job": [
            ("srun ", "srun -n 9 ", 13),
            ("srun ", "srun --nodes 3 ", 13),
            ("srun ", "srun -n 33 -c 2 ", 13),
        ],
        "gpus-shared": [("--gpus-per-node=4", "--gres=gpu:a100:2", 13), ("--gpus-per-node=4", "-G 4", 13)],
        "gpus-idle": [("--ntasks-per-node=4", "--ntasks-per-node=2", 13)],
        "launcher-in-launcher": [("python", "mpirun -np 8 python", 13)],
        "no-mpi": [("--mpi=pmix", "--mpi=none", 13), ("--mpi=pmix", "--mpi none", 13)],
        "mpi-not-named": [("--mpi=pmix ", "", 13)],
        "cpus-not-passed-on": [("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", "", 12)],
        "survivors-wait": [("--kill-on-bad-exit=1", "", 13), ("--kill-on-bad-exit=1", "-K0", 13)],
        "threads-exceed-cores": [("OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS=64", 13)],
        "threads-not-set": [("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n", "", 12)],
        "no-warning-signal": [
            ("#SBATCH --signal=USR1@120\n", "", 7),
            (
                "1:00:00\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=USR1@120\n",
                "1-0\n",
                6,
            ),
        ],
        "signal-at-once": [
            ("USR1@120", "USR1@3600", 9),
            ("1:00:00", "0:01:30", 9),
            (
                "1:00:00\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=USR1@120\n",
                "1\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=USR1\n",
                9,
            ),
        ],
        "signal-kills-script": [("--signal=USR1", "--signal=B:USR1", 9)],
        "trap-too-late": [("--signal=USR1@120\nset -e\n", f"--signal=B:USR1@120\nset -e\n{TRAP}", 14)],
        "no-wait": [("train.py", "train.py &", 13), ("train.py", "a.py & wait $!\nsrun nvidia-smi &", 14)],
        "log-overwritten": [("#SBATCH --open-mode=append\n", "", 7)],
        "output-folder-missing": [
            ("--time=1:00:00", "--time=1:00:00 --output=logs/%x-%j.out", 6),
            ("--time=1:00:00", "--time=1:00:00 -e /no/such/folder/%j.err", 6),
            ("--time=1:00:00", "--time=1:00:00 -o $HOME/%j.out", 6),
        ],
        "status-lost": [("set -e\n", "", 12), ("train.py", "train.py 2>&1 | tee log", 13)],
        "no-launcher": [("srun --mpi=pmix --kill-on-bad-exit=1 ", "", 13)],
        "ranks-exceed-tasks": [
            ("srun --mpi=pmix --kill-on-bad-exit=1", "mpirun -np 9", 13),
            ("srun --mpi=pmix --kill-on-bad-exit=1", "timeout -s USR1 1h mpirun -np 9", 13),
            ("srun --mpi=pmix --kill-on-bad-exit=1", "stdbuf -oL hpccoll run -np 9", 13),
            ("srun --mpi=pmix --kill-on-bad-exit=1", "mpirun -x A --mca btl tcp -n 9", 13),
            ("srun --mpi=pmix --kill-on-bad-exit=1", "hpccoll run -np $((SLURM_NTASKS + 1))", 13),
        ],
    },
    "lsf": {
        **ANY,
        "unknown-option": [("-nnodes 4", "-nodes 4", 2), (" -b packed:7", " -b tight", 11)],
        "no-time-limit": [("#BSUB -W 2:00\n", "", 2)],
        "time-limit-form": [("-W 2:00", "-W 2:00:00", 3)],
        "alloc-flags-twice": [("#BSUB -wa", "#BSUB -alloc_flags gpumps\n#BSUB -wa", 6)],
        "warning-incomplete": [("#BSUB -wt 2\n", "", 6)],
        "signal-kills-script": [("trap : USR1\n", "", 6)],
        "no-warning-signal": [("#BSUB -wa USR1\n#BSUB -wt 2\n", "", 6)],
        "no-nodes": [("#BSUB -nnodes 4\n", "", 2)],
        "set-larger-than-node": [("-c 7", "-c 43", 11), ("-g 1", "-g 7", 11)],
        "sets-do-not-fit": [("-c 7", "-c 8", 11), ("-n 24", "-n 25", 11), ("-g 1", "-g 2", 11)],
        "sets-span-sockets": [("-n 24 -r 6 -a 1 -c 7", "-n 20 -r 5 -a 1 -c 8", 11)],
        "nodes-idle": [("-n 24", "-n 18", 11)],
        "gpus-shared": [("-a 1", "-a 2", 11)],
        "cores-overbooked": [("packed:7", "packed:8", 11)],
        "bound-to-one-core": [("-b packed:7 ", "", 11)],
        "threads-exceed-cores": [("THREADS=7", "THREADS=29", 11)],
        "survivors-wait": [(" -X 1", "", 11)],
        "no-launcher": [(JSRUN.removesuffix("python train.py"), "", 11)],
        "ranks-exceed-slots": [("-nnodes 4", "-n 8", 11)],
        "log-not-named": [("#BSUB -o out.%J\n", "", 2)],
        "output-folder-missing": [
            ("-o out.%J", "-o logs/out.%J", 4),
            ("-o out.%J", "-o o -eo logs/%J.err", 4),
        ],
    },
}
CASES = [
    pytest.param(scheduler, rule, *case, id=f"{scheduler}-{rule}-{i}")
    for scheduler, rules in FAULTS.items()
    for rule, cases in rules.items()
    for i, case in enumerate(cases)
]


@pytest.mark.parametrize("text", [SLURM, LSF], ids=["slurm", "lsf"])
def test_sound_scripts_have_no_findings(text: str) -> None:
    assert check(text) == []


@pytest.mark.parametrize(("scheduler", "rule", "old", "new", "line"), CASES)
def test_fault_is_found(scheduler: str, rule: str, old: str, new: str, line: int) -> None:
    text = {"slurm": SLURM, "lsf": LSF}[scheduler]
    if rule == "status-lost":
        text += "echo done\n"
    if rule == "ranks-exceed-slots":
        text = text.replace(JSRUN, "mpirun -np 9 python train.py")
    assert text.count(old) == 1, "the fault is planted"
    found = check(text.replace(old, new))
    severity = {r.name: r.severity for r in RULES[scheduler]}[rule]
    assert (rule, severity, line) in [(f.rule, f.severity, f.line) for f in found]


@pytest.mark.parametrize("scheduler", RULES)
def test_every_rule_has_a_fault(scheduler: str) -> None:
    assert [rule.name for rule in RULES[scheduler]] == list(FAULTS[scheduler])
    assert all(rule.severity in ("error", "warning") for rule in RULES[scheduler])


def test_torchrun_starts_the_ranks_of_a_node_itself() -> None:
    text = SLURM.replace("--ntasks-per-node=4", "--ntasks-per-node=1").replace("--mpi=pmix ", "")
    assert check(text.replace("python train.py", "torchrun --nproc_per_node 4 train.py")) == []
    assert check(text.replace("python", "python -m torch.distributed.run")) == []


@pytest.mark.parametrize("written", ['bash -c "{}"', "x=$({})"])
def test_a_launcher_inside_another_command(written: str) -> None:
    """It is judged like one that begins its line."""
    *head, launch = SLURM.splitlines()
    assert check("\n".join([*head, written.format(launch)])) == []
    (found,) = check("\n".join([*head, written.format(launch.replace("srun", "srun -n 9"))]))
    assert (found.line, found.rule) == (len(head) + 1, "step-larger-than-job")


def test_one_gpu_is_no_plural() -> None:
    (found,) = [one for one in check(SLURM.replace("gpus-per-node=4", "gpus-per-node=1")) if one.rule == "gpus-shared"]
    assert found.problem == "4 tasks per node share 1 GPU"


def test_an_equals_sign_behind_a_short_option_belongs_to_the_value() -> None:
    """Slurm 22.05 says: Invalid numeric value "=8" for --ntasks."""
    text = SLURM.replace("--nodes=2\n", "--nodes=2 -n=8\n").replace("srun ", "srun -c=8 ")
    assert [(found.line, found.problem) for found in check(text) if found.severity == "error"] == [
        (2, "sbatch takes -n=8 as the value '=8': write -n8 or --ntasks=8"),
        (13, "srun takes -c=8 as the value '=8': write -c8 or --cpus-per-task=8"),
    ]


def test_what_only_the_job_knows_is_no_finding() -> None:
    text = LSF.replace("-c 7", "-c $CORES").replace("-a 1", "-a ${TASKS}").replace("packed:7", "packed:$CORES")
    assert check(text) == []
    assert check(SLURM.replace("srun ", "srun -n $RANKS ")) == []


@pytest.mark.parametrize("opened", ["if true; then", "for i in 1 2; do", "echo $(date", "{", "(", 'echo "${X'])
def test_what_is_opened_and_not_closed(opened: str) -> None:
    text = SLURM.replace("set -e\n", f"set -e\n{opened}\n")
    (line,) = [f.line for f in check(text) if f.rule == "shell-syntax"]
    assert 10 < line <= text.count("\n"), "bash names the opening or the end of the file, by its version"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("#!/bin/bash -l", "shopt -s extglob; ls !(old)"),
        ("#!/usr/bin/env bash", "cat <<END\nit's a text\nEND"),
        ("#!/bin/sh", "echo $'it\\'s'"),
        ("#!/usr/bin/env python3", "print('(')"),
        ("#!/bin/csh", "if ($x == 1) then"),
    ],
)
def test_what_the_interpreter_reads_is_no_finding(first: str, then: str) -> None:
    text = SLURM.replace("#!/bin/bash", first).replace("set -e\n", f"set -e\n{then}\n")
    assert "shell-syntax" not in [finding.rule for finding in check(text)]


def test_output_folders_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is looked for in the current folder or in --chdir; a part that only the job knows is left alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "logs").mkdir(parents=True)
    for options in (
        "-o runs/logs/%j.out",
        "-D runs -o logs/%j.out",
        f"-o {tmp_path}/%j.out",
        "-o /dev/null",
        "-o %x/%j",
    ):
        assert check(SLURM.replace("--time=1:00:00", f"--time=1:00:00 {options}")) == []
    for options in ("-o runs/logs/%J", "-cwd runs -o logs/%J", "-o new/ -e runs/%J", "-o $HOME/no/%J"):
        assert check(LSF.replace("-o out.%J", options)) == []


def test_a_variable_in_a_directive_stays_as_it_is() -> None:
    (finding,) = check(SLURM.replace("--time=1:00:00", "--time=1:00:00 -o $HOME/%j.out"))
    assert "there is no folder $HOME here" in finding.problem
    assert finding.remedy == "a full path: Slurm expands neither $ nor ~"


SOUND = {  # what users write, and what is right about it: (what is taken out of the sound script, what is put in)
    "a launcher in a variable": ("srun --mpi=pmix --kill-on-bad-exit=1 python", 'GO="srun --mpi=pmix -K"\n$GO python'),
    "threads in --export": (
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun", "srun --export=ALL,OMP_NUM_THREADS=4"
    ),
    "more and smaller tasks in the CPUs of the job": (
        "srun ", "OMP_NUM_THREADS=4 srun -n 16 -c 4 --ntasks-per-node=8 --gpus-per-node=8 "
    ),
    "a set for a node, whose tasks are bound": (
        JSRUN, "jsrun -n ALL_HOSTS -a 6 -c ALL_CPUS -g ALL_GPUS -b packed:7 -X 1 python train.py",
    ),
    "options in an array": (
        "srun --mpi=pmix", "options=(-n8 # of 8\n --mpi=pmix)\noptions+=(--label)\nsrun \"${options[@]}\"",
    ),
    "tasks only in the step, as on whole nodes": ("#SBATCH --ntasks-per-node=4\n", "", "srun ", "srun -n 8 "),
    "Cray's MPI": ("--mpi=pmix ", "", "set -e", "set -e\nmodule load PrgEnv-gnu"),
    "the program has an -n": ("srun --mpi=pmix --kill-on-bad-exit=1 python", "mpirun -x PATH python train.py -n 64"),
    "a failure that ends the script": ("set -e\n", "", "train.py\n", "train.py || exit 1\necho done\n"),
    "a function that runs the ranks": (
        "set -e\n", "", "srun --mpi", "run() {\nsrun --mpi", "train.py\n", "train.py\n}\nrun\n"
    ),
    "ranks in the background": ("train.py\n", "train.py &\nif wait; then echo done; fi\n"),
    "a watch in the background": ("srun --mpi", "srun nvidia-smi -l 9 &\nsrun --mpi"),
    "a pipe that fails": ("set -e", "set -euo pipefail", "train.py", "train.py | tee log"),
    "the status of a pipe": ("set -e\n", "", "train.py\n", "train.py | tee log\nexit ${PIPESTATUS[0]}\n"),
    "oversubscribed": ("srun --mpi=pmix --kill-on-bad-exit=1", "mpirun --oversubscribe -np 16"),
    "a heterogeneous job": ("set -e", "#SBATCH hetjob\n#SBATCH --nodes=1 --ntasks-per-node=1\nset -e"),
}  # fmt: skip


@pytest.mark.parametrize("right", SOUND)
def test_no_false_alarm(right: str) -> None:
    changes = iter(SOUND[right])
    text = LSF if SOUND[right][0] == JSRUN else SLURM
    for old, new in zip(changes, changes, strict=True):
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert check(text) == []


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 90.5),
        ("2:00:00", 120),
        ("1-12", 2160),
        ("1-2:30", 1590),
        ("1-0:0:30", 1440.5),
        ("2 h", None),
    ],
)
def test_time_limits_of_slurm(text: str, minutes: float | None) -> None:
    assert time_limit(text) == minutes


def test_no_directives_is_no_job_script() -> None:
    (finding,) = check("#!/bin/bash\nmpirun python train.py\n")
    assert finding.rule == "no-directives" and finding.severity == "error"


def lint(*words: object, text: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hpccoll", "lint", *map(str, words)],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_command_line(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(SLURM)
    assert lint(script) == (0, "")
    script.write_text(SLURM.replace("--kill-on-bad-exit=1", ""))
    status, output = lint(script)
    assert status == 0 and output.startswith(f"{script}:13: warning: if one task dies")
    script.write_text(SLURM.replace("--mpi=pmix", "--mpi=none"))
    status, output = lint(script, "--json")
    (finding,) = json.loads(output)
    assert status == 1
    assert (finding["script"], finding["rule"], finding["line"]) == (str(script), "no-mpi", 13)
    assert lint("-", text=SLURM) == (0, "")
    script.write_bytes(SLURM.replace("\n", "\r\n").encode())
    assert "CR LF" in lint(script)[1]
    status, output = lint(tmp_path / "missing.sh", script)
    assert status == 2 and "missing.sh" in output and "CR LF" in output, "the other scripts are examined, too"

# SPDX-License-Identifier: Apache-2.0
"""Problems of jobs under Slurm: one small function per rule."""

import math
import re
from collections.abc import Iterator
from pathlib import PurePath

from hpccoll.tools.lint import slurm
from hpccoll.tools.lint.diagnostics import Problem, Rule, rule
from hpccoll.tools.lint.script import LAUNCHERS, PLAIN, Launch, Script
from hpccoll.tools.lint.script_rules import missing_folder
from hpccoll.tools.lint.slurm import number

RULES: list[Rule] = []
SIGNAL_SECONDS = 60
"""Seconds before the end of a job at which --signal without a number is sent, as `man sbatch` says."""
LONG = 8 * 60
"""A job of more minutes than this should save its state before it is ended."""


def steps(script: Script) -> Iterator[tuple[Launch, slurm.Sizes]]:
    """Yield the sruns of a script, with the sizes that each asks for."""
    for launch in script.launches:
        if launch.launcher == "srun" and launch.program:
            yield launch, slurm.sizes(script.options.values | launch.parsed.values)


def mpi_steps(script: Script) -> Iterator[tuple[Launch, slurm.Sizes]]:
    """Yield the steps whose tasks are the ranks."""
    return (step for step in steps(script) if step[0].uses_mpi)


@rule(RULES, "unknown-option", "error")
def unknown_option(script: Script) -> Iterator[Problem]:
    """An option that sbatch or srun does not have: the job is refused."""
    for line, problem in script.problems:
        yield Problem(line, problem, "correct it; `man sbatch` has the list")
    for launch in script.launches:
        for problem in launch.parsed.problems if launch.launcher == "srun" else ():
            yield Problem(launch.line, problem, "correct it; `man srun` has the list")


@rule(RULES, "no-interpreter", "error")
def no_interpreter(script: Script) -> Iterator[Problem]:
    """No #! in the first line: sbatch refuses the script."""
    if not script.text.startswith("#!"):
        yield Problem(1, "sbatch takes no script without an interpreter", "#!/bin/bash in the first line")


@rule(RULES, "only-a-comment", "warning")
def only_a_comment(script: Script) -> Iterator[Problem]:
    """`# SBATCH`, or an indented #SBATCH: a comment, which Slurm does not read."""
    for at, line in enumerate(script.text.splitlines(), 1):
        words = line.split()
        apart = words[:2] == ["#", "SBATCH"]
        if apart or (words[:1] == ["#SBATCH"] and not line.startswith("#")):
            yield Problem(at, "to Slurm this is a comment", "#SBATCH at the start of the line, in one word")


@rule(RULES, "late-directive", "error")
def late_directive(script: Script) -> Iterator[Problem]:
    """A directive after the first command, which Slurm does not read."""
    for line in script.late:
        yield Problem(line, "Slurm reads no #SBATCH line after the first command", "move it to the top")


@rule(RULES, "no-time-limit", "warning")
def no_time_limit(script: Script) -> Iterator[Problem]:
    """No --time: the partition's default decides, often minutes or the longest queue."""
    if "time" not in script.options:
        yield Problem(script.head, "no --time", "say how long the job may run, as in #SBATCH --time=2:00:00")


@rule(RULES, "time-limit-form", "error")
def time_limit_form(script: Script) -> Iterator[Problem]:
    """--time that Slurm does not understand."""
    text = script.options.get("time")
    if text is not None and slurm.time_limit(text) is None:
        yield Problem(script.line_of("time"), f"--time={text} is no time", "H:MM:SS, or days-hours as in 1-12")


@rule(RULES, "minutes-not-hours", "warning")
def minutes_not_hours(script: Script) -> Iterator[Problem]:
    """--time=2:00, which is two minutes for Slurm."""
    text = script.options.get("time") or ""
    if text.count(":") == 1 and "-" not in text and (limit := slurm.time_limit(text)):
        yield Problem(
            script.line_of("time"),
            f"--time={text} is {limit:g} minutes",
            f"--time={text}:00 if hours are meant",
        )


@rule(RULES, "task-count", "error")
def task_count(script: Script) -> Iterator[Problem]:
    """--ntasks is not --nodes times --ntasks-per-node."""
    nodes, tasks = number(script.options.get("nodes")), number(script.options.get("ntasks"))
    per_node = number(script.options.get("ntasks-per-node"))
    if nodes and tasks and per_node and nodes * per_node != tasks:
        problem = f"{tasks} tasks, but {nodes} nodes with {per_node} tasks each make {nodes * per_node}"
        yield Problem(script.line_of("ntasks"), problem, "leave --ntasks out")


@rule(RULES, "step-larger-than-job", "error")
def step_larger_than_job(script: Script) -> Iterator[Problem]:
    """An srun that asks for more nodes or tasks than the job has: it fails, or waits for ever."""
    whole = slurm.sizes(script.options.values)
    # Exclusive nodes bring all their CPUs; a job without a number of tasks often leaves the number to srun.
    counted = {
        "ntasks",
        "ntasks-per-node",
    } & script.options.values.keys() and "exclusive" not in script.options
    cpus = whole.tasks * (whole.cpus_per_task or 1) if whole.tasks and counted else None
    for launch, step in steps(script):
        if "overcommit" in launch.parsed:
            continue
        each = number(launch.parsed.get("cpus-per-task") or launch.environment.get("SRUN_CPUS_PER_TASK")) or 1
        for what, part, all_of in (
            ("nodes", step.nodes, whole.nodes),
            ("tasks", step.tasks, cpus and cpus // each),
        ):
            if part and all_of and part > all_of:
                yield Problem(
                    launch.line,
                    f"srun asks for {part} {what}, the job has {all_of}",
                    "ask sbatch for more, or srun for less",
                )


@rule(RULES, "gpus-shared", "error")
def gpus_shared(script: Script) -> Iterator[Problem]:
    """More tasks than GPUs per node: two ranks get one GPU, which NCCL refuses."""
    for launch, step in mpi_steps(script):
        if step.gpus_per_node and step.tasks_per_node and step.tasks_per_node > step.gpus_per_node:
            gpus = f"{step.gpus_per_node} GPU{'s' if step.gpus_per_node > 1 else ''}"
            problem = f"{step.tasks_per_node} tasks per node share {gpus}"
            yield Problem(launch.line, problem, f"--ntasks-per-node={step.gpus_per_node}")


@rule(RULES, "gpus-idle", "warning")
def gpus_idle(script: Script) -> Iterator[Problem]:
    """Fewer tasks than GPUs per node: hpccoll drives one GPU per rank, the others are paid for and idle."""
    for launch, step in mpi_steps(script):
        if step.gpus_per_node and step.tasks_per_node and step.tasks_per_node < step.gpus_per_node:
            problem = f"{step.tasks_per_node} tasks for {step.gpus_per_node} GPUs per node"
            yield Problem(launch.line, problem, f"--ntasks-per-node={step.gpus_per_node}")


@rule(RULES, "launcher-in-launcher", "error")
def launcher_in_launcher(script: Script) -> Iterator[Problem]:
    """srun mpirun: every task starts a job of its own."""
    for launch, step in mpi_steps(script):
        if launch.program in LAUNCHERS and (step.tasks or 2) > 1:
            problem = f"each of srun's {step.tasks or ''} tasks starts a {launch.program}".replace("  ", " ")
            yield Problem(launch.line, problem, f"srun or {launch.program}, not both")


@rule(RULES, "no-mpi", "error")
def no_mpi(script: Script) -> Iterator[Problem]:
    """srun --mpi=none with several tasks: each believes to be alone, and they overwrite each other's files."""
    for launch, step in mpi_steps(script):
        if (step.tasks or 2) > 1 and mpi_of(launch) == "none":
            yield Problem(launch.line, "--mpi=none: every task believes to be alone", "--mpi=pmix, or pmi2 for MPICH")


@rule(RULES, "mpi-not-named", "warning")
def mpi_not_named(script: Script) -> Iterator[Problem]:
    """No --mpi=: whether the tasks find each other depends on the site's MpiDefault, which is often none."""
    for launch, step in mpi_steps(script):
        if (step.tasks or 2) > 1 and mpi_of(launch) is None and not cray(script):
            yield Problem(
                launch.line,
                "srun without --mpi=: where the site's default is none, every task believes to be alone",
                "--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH; `srun --mpi=list` shows what there is",
            )


def mpi_of(launch: Launch) -> str | None:
    """The protocol that connects the tasks, if the line or the environment names one."""
    return launch.parsed.get("mpi") or launch.environment.get("SLURM_MPI_TYPE")


def cray(script: Script) -> bool:
    """Whether the script loads HPE Cray's modules; sites with them choose the plugin themselves."""
    return any(word.startswith(("cray-", "PrgEnv-")) for command in script.commands for word in command.words)


@rule(RULES, "cpus-not-passed-on", "error")
def cpus_not_passed_on(script: Script) -> Iterator[Problem]:
    """--cpus-per-task in the job but not for srun, which does not inherit it since 22.05: one core per task."""
    cpus = number(script.options.get("cpus-per-task"))
    for launch, _ in steps(script):
        if launch.program in PLAIN:
            continue
        passed_on = "cpus-per-task" in launch.parsed or "SRUN_CPUS_PER_TASK" in launch.environment
        if cpus and cpus > 1 and not passed_on:
            yield Problem(
                launch.line,
                f"the job has {cpus} CPUs per task, but since Slurm 22.05 srun does not inherit that: each task gets "
                "one",
                "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, or srun --cpus-per-task",
            )


@rule(RULES, "survivors-wait", "warning")
def survivors_wait(script: Script) -> Iterator[Problem]:
    """No --kill-on-bad-exit: if a task dies, the others may wait until the time limit."""
    for launch, step in mpi_steps(script):
        flag = launch.parsed.get("kill-on-bad-exit")
        if (step.tasks or 2) > 1 and (flag is None or flag == "0") and "SLURM_KILL_BAD_EXIT" not in launch.environment:
            yield Problem(
                launch.line,
                "if one task dies, the others stay until the time limit",
                "srun --kill-on-bad-exit=1",
            )


@rule(RULES, "threads-exceed-cores", "error")
def threads_exceed_cores(script: Script) -> Iterator[Problem]:
    """OMP_NUM_THREADS above the CPUs of a task: the threads fight for cores."""
    for launch, step in mpi_steps(script):
        threads = number(launch.environment.get("OMP_NUM_THREADS"))
        cpus = step.cpus_per_task or 1
        if threads and threads > cpus:
            yield Problem(
                launch.line,
                f"OMP_NUM_THREADS={threads}, but a task has {cpus} CPU{'s' if cpus > 1 else ''}",
                "OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK, or ask for more --cpus-per-task",
            )


@rule(RULES, "threads-not-set", "warning")
def threads_not_set(script: Script) -> Iterator[Problem]:
    """OMP_NUM_THREADS not set: where tasks are not bound, each starts as many threads as the node has cores."""
    for launch, step in mpi_steps(script):
        if (step.tasks_per_node or 1) > 1 and "OMP_NUM_THREADS" not in launch.environment:
            yield Problem(
                launch.line,
                f"{step.tasks_per_node} tasks per node, and OMP_NUM_THREADS is not set: each may start a thread per "
                "core",
                "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}",
            )


@rule(RULES, "no-warning-signal", "warning")
def no_warning_signal(script: Script) -> Iterator[Problem]:
    """No --signal in a job of many hours or with --requeue: at the time limit it dies without saving."""
    long = (slurm.time_limit(script.options.get("time") or "") or 0) > LONG
    if "signal" not in script.options and (long or "requeue" in script.options):
        line = script.line_of("requeue" if "requeue" in script.options else "time")
        yield Problem(line, "nothing tells the job that its time ends", "#SBATCH --signal=USR1@120")


@rule(RULES, "signal-at-once", "error")
def signal_at_once(script: Script) -> Iterator[Problem]:
    """--signal=...@S with no less than --time: the job is within S seconds of its end when it starts."""
    limit = slurm.time_limit(script.options.get("time") or "")
    _, at, text = (script.options.get("signal") or "").partition("@")
    seconds = number(text) if at else SIGNAL_SECONDS
    if "signal" not in script.options or seconds is None or not limit or limit == math.inf:
        return  # --time=0 is no limit, too
    minutes = math.ceil(limit)  # as Slurm rounds it
    if seconds >= minutes * 60:
        yield Problem(
            script.line_of("signal"),
            f"the signal is to come {seconds} s before the end of a job of {minutes} min: Slurm sends it at the "
            "start, and a job that requeues itself then does so for ever",
            "a smaller number after @, or more --time",
        )


@rule(RULES, "signal-kills-script", "error")
def signal_kills_script(script: Script) -> Iterator[Problem]:
    """--signal=B: without a trap: the signal ends the script, and with it the job."""
    kind, _, rest = (script.options.get("signal") or "").partition(":")
    if "B" in kind and rest and not any(command.argv[:1] == ("trap",) for command in script.commands):
        name = rest.partition("@")[0]
        yield Problem(
            script.line_of("signal"), f"{name} goes to the script alone, which has no trap for it and dies",
            f"--signal={rest} to reach the tasks, or a trap that hands it on",
        )  # fmt: skip


@rule(RULES, "trap-too-late", "error")
def trap_too_late(script: Script) -> Iterator[Problem]:
    """--signal=B: with a trap, but the ranks run in the foreground: bash runs the trap after they have ended."""
    kind, colon, _ = (script.options.get("signal") or "").partition(":")
    if not colon or "B" not in kind or not any(command.argv[:1] == ("trap",) for command in script.commands):
        return
    for launch in script.launches:
        if not launch.background and launch.program not in PLAIN:
            yield Problem(
                launch.line, "bash runs a trap only after a command in the foreground has ended",
                "put & behind it, then wait",
            )  # fmt: skip


@rule(RULES, "no-wait", "error")
def no_wait(script: Script) -> Iterator[Problem]:
    """Ranks in the background, and nothing behind them that lasts: the script ends, and the job with it."""
    lasting = [c.line for c in script.commands if c.argv[:1] == ("wait",)]
    lasting += [launch.line for launch in script.launches if not launch.background]
    for launch in script.launches:
        if launch.background and not any(line >= launch.line for line in lasting):
            yield Problem(launch.line, "the script ends while this runs, and Slurm ends it then", "wait at the end")


@rule(RULES, "log-overwritten", "warning")
def log_overwritten(script: Script) -> Iterator[Problem]:
    """--requeue without --open-mode=append: the second run overwrites the first one's output."""
    if "requeue" in script.options and script.options.get("open-mode") != "append":
        yield Problem(script.line_of("requeue"), "a requeued job overwrites its output", "#SBATCH --open-mode=append")


@rule(RULES, "output-folder-missing", "error")
def output_folder_missing(script: Script) -> Iterator[Problem]:
    """--output or --error into a folder that does not exist: the job fails at once, and nothing says why."""
    for option in ("output", "error"):
        file = script.options.get(option) or ""
        if folder := missing_folder(file, script.options.get("chdir") or ""):
            problem = f"--{option}={file}, but there is no folder {folder} here: the job will fail without a word"
            literal = re.search(r"\$|^~", folder)
            remedy = "a full path: Slurm expands neither $ nor ~" if literal else f"mkdir -p {folder} before sbatch"
            yield Problem(script.line_of(option), problem, remedy)


@rule(RULES, "status-lost", "warning")
def status_lost(script: Script) -> Iterator[Problem]:
    """A pipe behind the ranks, or a command after them without `set -e`: they fail, and the job is completed."""
    stops = any(
        c.argv[:1] == ("set",) and any(w[0] in "-+" and "e" in w[1:] for w in c.argv[1:]) for c in script.commands
    )
    last = script.commands[-1] if script.commands else None
    by_status = {"exit", "wait", "srun"} | {c.argv[0] for c in script.commands if c.end == "(" and len(c.argv) == 1}
    for launch in script.launches:
        if launch.end == "|" and "pipefail" not in script.text and "PIPESTATUS" not in script.text:
            problem = "if this fails, the job still counts as completed, by the status of the last command of the pipe"
            yield Problem(launch.line, problem, "set -o pipefail at the top")
            continue
        after = last is not None and last.line > launch.line and not by_status & set(last.argv[:1])
        if after and not stops and launch.end not in ("&", "||"):
            yield Problem(launch.line, "if this fails, the job still counts as completed", "set -e at the top")


@rule(RULES, "no-launcher", "warning")
def no_launcher(script: Script) -> Iterator[Problem]:
    """Several tasks, and nothing in the script that starts them: the program runs once, on the first node."""
    tasks = slurm.sizes(script.options.values).tasks
    python = [c for c in script.commands if c.argv and PurePath(c.argv[0]).name.startswith("python")]
    if tasks and tasks > 1 and python and not script.launches:
        yield Problem(python[-1].line, f"the job has {tasks} tasks, but this runs once", "srun --mpi=pmix before it")


@rule(RULES, "ranks-exceed-tasks", "error")
def ranks_exceed_tasks(script: Script) -> Iterator[Problem]:
    """A call of mpirun with more ranks than the job has tasks: not enough slots."""
    tasks = slurm.sizes(script.options.values).tasks
    for launch in script.launches:
        ranks = number(launch.parsed.get("np")) if launch.launcher == "mpirun" else None
        if ranks and tasks and ranks > tasks and "oversubscribe" not in launch.parsed:
            yield Problem(
                launch.line,
                f"mpirun starts {ranks} ranks, the job has {tasks} tasks",
                "ask sbatch for more tasks",
            )

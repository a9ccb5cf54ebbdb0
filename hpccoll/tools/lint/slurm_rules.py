# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with jobs under Slurm: one small function each."""

import re
from collections.abc import Iterator
from pathlib import PurePath

from hpccoll.tools.lint import slurm
from hpccoll.tools.lint.findings import Rule, Said, rule
from hpccoll.tools.lint.job import LAUNCHERS, PLAIN, Job, Launch
from hpccoll.tools.lint.script_rules import missing_folder
from hpccoll.tools.lint.slurm import number

RULES: list[Rule] = []
LONG = 8 * 60
"""Minutes of a job that nobody wants to lose."""


def steps(job: Job) -> Iterator[tuple[Launch, slurm.Asked]]:
    """The sruns of a job, with what each asks for."""
    for launch in job.launches:
        if launch.launcher == "srun" and launch.program:
            yield launch, slurm.asked(job.options.values | launch.parsed.values)


def mpi_steps(job: Job) -> Iterator[tuple[Launch, slurm.Asked]]:
    """Those whose tasks are the ranks."""
    return (step for step in steps(job) if step[0].speaks_mpi)


@rule(RULES, "unknown-option", "error")
def unknown_option(job: Job) -> Iterator[Said]:
    """An option that sbatch or srun does not have: the job is refused."""
    for line, problem in job.problems:
        yield Said(line, problem, "correct it; `man sbatch` has the list")
    for launch in job.launches:
        for problem in launch.parsed.problems if launch.launcher == "srun" else ():
            yield Said(launch.line, problem, "correct it; `man srun` has the list")


@rule(RULES, "no-interpreter", "error")
def no_interpreter(job: Job) -> Iterator[Said]:
    """No #! in the first line: sbatch refuses the script."""
    if not job.text.startswith("#!"):
        yield Said(1, "sbatch takes no script without an interpreter", "#!/bin/bash in the first line")


@rule(RULES, "only-a-comment", "warning")
def only_a_comment(job: Job) -> Iterator[Said]:
    """`# SBATCH`, or an indented #SBATCH: a comment, which Slurm does not read."""
    for at, line in enumerate(job.text.splitlines(), 1):
        words = line.split()
        apart = words[:2] == ["#", "SBATCH"]
        if apart or (words[:1] == ["#SBATCH"] and not line.startswith("#")):
            yield Said(at, "to Slurm this is a comment", "#SBATCH at the start of the line, in one word")


@rule(RULES, "late-directive", "error")
def late_directive(job: Job) -> Iterator[Said]:
    """A directive after the first command, which Slurm does not read."""
    for line in job.late:
        yield Said(line, "Slurm reads no #SBATCH line after the first command", "move it to the top")


@rule(RULES, "no-time-limit", "warning")
def no_time_limit(job: Job) -> Iterator[Said]:
    """No --time: the partition's default decides, often minutes or the longest queue."""
    if "time" not in job.options:
        yield Said(job.head, "no --time", "say how long the job may run, as in #SBATCH --time=2:00:00")


@rule(RULES, "time-limit-form", "error")
def time_limit_form(job: Job) -> Iterator[Said]:
    """--time that Slurm does not understand."""
    text = job.options.get("time")
    if text is not None and slurm.time_limit(text) is None:
        yield Said(job.line_of("time"), f"--time={text} is no time", "H:MM:SS, or days-hours as in 1-12")


@rule(RULES, "minutes-not-hours", "warning")
def minutes_not_hours(job: Job) -> Iterator[Said]:
    """--time=2:00, which is two minutes for Slurm."""
    text = job.options.get("time") or ""
    if text.count(":") == 1 and "-" not in text and (limit := slurm.time_limit(text)):
        yield Said(
            job.line_of("time"), f"--time={text} is {limit:g} minutes", f"--time={text}:00 if hours are meant"
        )


@rule(RULES, "task-count", "error")
def task_count(job: Job) -> Iterator[Said]:
    """--ntasks is not --nodes times --ntasks-per-node."""
    nodes, tasks = number(job.options.get("nodes")), number(job.options.get("ntasks"))
    per_node = number(job.options.get("ntasks-per-node"))
    if nodes and tasks and per_node and nodes * per_node != tasks:
        problem = f"{tasks} tasks, but {nodes} nodes with {per_node} tasks each make {nodes * per_node}"
        yield Said(job.line_of("ntasks"), problem, "leave --ntasks out")


@rule(RULES, "step-larger-than-job", "error")
def step_larger_than_job(job: Job) -> Iterator[Said]:
    """An srun that asks for more nodes or tasks than the job has: it fails, or waits for ever."""
    whole = slurm.asked(job.options.values)
    # nodes that are the job's alone bring all their CPUs; a job that says no number of tasks is often meant so
    counted = {"ntasks", "ntasks-per-node"} & job.options.values.keys() and "exclusive" not in job.options
    cpus = whole.tasks * (whole.cpus_per_task or 1) if whole.tasks and counted else None
    for launch, step in steps(job):
        if "overcommit" in launch.parsed:
            continue
        each = number(launch.parsed.get("cpus-per-task") or launch.environment.get("SRUN_CPUS_PER_TASK")) or 1
        for what, part, all_of in (
            ("nodes", step.nodes, whole.nodes),
            ("tasks", step.tasks, cpus and cpus // each),
        ):
            if part and all_of and part > all_of:
                yield Said(
                    launch.line,
                    f"srun asks for {part} {what}, the job has {all_of}",
                    "ask sbatch for more, or srun for less",
                )


@rule(RULES, "gpus-shared", "error")
def gpus_shared(job: Job) -> Iterator[Said]:
    """More tasks than GPUs on a node: two ranks get one GPU, which NCCL refuses."""
    for launch, step in mpi_steps(job):
        if step.gpus_per_node and step.tasks_per_node and step.tasks_per_node > step.gpus_per_node:
            problem = f"{step.tasks_per_node} tasks a node share {step.gpus_per_node} GPUs"
            yield Said(launch.line, problem, f"--ntasks-per-node={step.gpus_per_node}")


@rule(RULES, "gpus-idle", "warning")
def gpus_idle(job: Job) -> Iterator[Said]:
    """Fewer tasks than GPUs on a node: hpccoll drives one GPU a rank, the others are paid for and idle."""
    for launch, step in mpi_steps(job):
        if step.gpus_per_node and step.tasks_per_node and step.tasks_per_node < step.gpus_per_node:
            problem = f"{step.tasks_per_node} tasks for {step.gpus_per_node} GPUs a node"
            yield Said(launch.line, problem, f"--ntasks-per-node={step.gpus_per_node}")


@rule(RULES, "launcher-in-launcher", "error")
def launcher_in_launcher(job: Job) -> Iterator[Said]:
    """srun mpirun: every task starts a job of its own."""
    for launch, step in mpi_steps(job):
        if launch.program in LAUNCHERS and (step.tasks or 2) > 1:
            problem = f"each of srun's {step.tasks or ''} tasks starts a {launch.program}".replace("  ", " ")
            yield Said(launch.line, problem, f"srun or {launch.program}, not both")


@rule(RULES, "no-mpi", "error")
def no_mpi(job: Job) -> Iterator[Said]:
    """srun --mpi=none with several tasks: each believes to be alone, N programs overwrite each other's files."""
    for launch, step in mpi_steps(job):
        if (step.tasks or 2) > 1 and mpi_of(launch) == "none":
            yield Said(
                launch.line, "--mpi=none: every task believes to be alone", "--mpi=pmix, or pmi2 for MPICH"
            )


@rule(RULES, "mpi-not-named", "warning")
def mpi_not_named(job: Job) -> Iterator[Said]:
    """No --mpi=: whether the tasks find each other depends on the site's MpiDefault, which is often none."""
    for launch, step in mpi_steps(job):
        if (step.tasks or 2) > 1 and mpi_of(launch) is None and not cray(job):
            yield Said(
                launch.line,
                "srun without --mpi=: where the site's default is none, every task believes to be alone",
                "--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH; `srun --mpi=list` shows what there is",
            )


def mpi_of(launch: Launch) -> str | None:
    """What connects the tasks, if the line or the environment says so."""
    return launch.parsed.get("mpi") or launch.environment.get("SLURM_MPI_TYPE")


def cray(job: Job) -> bool:
    """The script loads modules of HPE Cray's, whose sites set the plugin themselves."""
    return any(word.startswith(("cray-", "PrgEnv-")) for command in job.commands for word in command.words)


@rule(RULES, "cpus-not-passed-on", "error")
def cpus_not_passed_on(job: Job) -> Iterator[Said]:
    """--cpus-per-task in the job but not for srun, which does not inherit it since 22.05: one core a task."""
    cpus = number(job.options.get("cpus-per-task"))
    for launch, _ in steps(job):
        if launch.program in PLAIN:
            continue
        told = "cpus-per-task" in launch.parsed or "SRUN_CPUS_PER_TASK" in launch.environment
        if cpus and cpus > 1 and not told:
            yield Said(
                launch.line,
                f"the job has {cpus} CPUs a task, but since Slurm 22.05 srun does not inherit that: each task gets one",
                "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, or srun --cpus-per-task",
            )


@rule(RULES, "survivors-wait", "warning")
def survivors_wait(job: Job) -> Iterator[Said]:
    """No --kill-on-bad-exit: if a task dies, the others may wait until the time limit."""
    for launch, step in mpi_steps(job):
        said = launch.parsed.get("kill-on-bad-exit")
        if (
            (step.tasks or 2) > 1
            and (said is None or said == "0")
            and "SLURM_KILL_BAD_EXIT" not in launch.environment
        ):
            yield Said(
                launch.line,
                "if one task dies, the others stay until the time limit",
                "srun --kill-on-bad-exit=1",
            )


@rule(RULES, "threads-exceed-cores", "error")
def threads_exceed_cores(job: Job) -> Iterator[Said]:
    """OMP_NUM_THREADS above the CPUs of a task: the threads fight for cores."""
    for launch, step in mpi_steps(job):
        threads = number(launch.environment.get("OMP_NUM_THREADS"))
        cpus = step.cpus_per_task or 1
        if threads and threads > cpus:
            yield Said(
                launch.line,
                f"OMP_NUM_THREADS={threads}, but a task has {cpus} CPU{'s' if cpus > 1 else ''}",
                "OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK, or ask for more --cpus-per-task",
            )


@rule(RULES, "threads-not-set", "warning")
def threads_not_set(job: Job) -> Iterator[Said]:
    """OMP_NUM_THREADS not set: where tasks are not bound, each starts as many threads as the node has cores."""
    for launch, step in mpi_steps(job):
        if (step.tasks_per_node or 1) > 1 and "OMP_NUM_THREADS" not in launch.environment:
            yield Said(
                launch.line,
                f"{step.tasks_per_node} tasks a node, and OMP_NUM_THREADS is not set: each may start a thread a core",
                "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}",
            )


@rule(RULES, "no-warning-signal", "warning")
def no_warning_signal(job: Job) -> Iterator[Said]:
    """No --signal in a job of many hours or one with --requeue: at the time limit it dies without saving."""
    long = (slurm.time_limit(job.options.get("time") or "") or 0) > LONG
    if "signal" not in job.options and (long or "requeue" in job.options):
        line = job.line_of("requeue" if "requeue" in job.options else "time")
        yield Said(line, "nothing tells the job that its time ends", "#SBATCH --signal=USR1@120")


@rule(RULES, "signal-kills-script", "error")
def signal_kills_script(job: Job) -> Iterator[Said]:
    """--signal=B: without a trap: the signal ends the script, and with it the job."""
    kind, _, rest = (job.options.get("signal") or "").partition(":")
    if "B" in kind and rest and not any(command.argv[:1] == ("trap",) for command in job.commands):
        name = rest.partition("@")[0]
        yield Said(
            job.line_of("signal"), f"{name} goes to the script alone, which has no trap for it and dies",
            f"--signal={rest} to reach the tasks, or a trap that hands it on",
        )  # fmt: skip


@rule(RULES, "trap-too-late", "error")
def trap_too_late(job: Job) -> Iterator[Said]:
    """--signal=B: with a trap, but the ranks run in the foreground: bash runs the trap after they have ended."""
    kind, colon, _ = (job.options.get("signal") or "").partition(":")
    if not colon or "B" not in kind or not any(command.argv[:1] == ("trap",) for command in job.commands):
        return
    for launch in job.launches:
        if not launch.background and launch.program not in PLAIN:
            yield Said(
                launch.line, "bash runs a trap only after a command in the foreground has ended",
                "put & behind it, then wait",
            )  # fmt: skip


@rule(RULES, "log-overwritten", "warning")
def log_overwritten(job: Job) -> Iterator[Said]:
    """--requeue without --open-mode=append: the second run overwrites the first one's output."""
    if "requeue" in job.options and job.options.get("open-mode") != "append":
        yield Said(
            job.line_of("requeue"), "a requeued job overwrites its output", "#SBATCH --open-mode=append"
        )


@rule(RULES, "output-folder-missing", "error")
def output_folder_missing(job: Job) -> Iterator[Said]:
    """--output or --error into a folder that is not there: the job fails at once, and nothing says why."""
    for option in ("output", "error"):
        file = job.options.get(option) or ""
        if folder := missing_folder(file, job.options.get("chdir") or ""):
            problem = (
                f"--{option}={file}, but there is no folder {folder} here: the job will fail without a word"
            )
            literal = re.search(r"\$|^~", folder)
            remedy = (
                "a path in full: Slurm takes $ and ~ as they stand"
                if literal
                else f"mkdir -p {folder} before sbatch"
            )
            yield Said(job.line_of(option), problem, remedy)


@rule(RULES, "status-lost", "warning")
def status_lost(job: Job) -> Iterator[Said]:
    """A command after the ranks, and no `set -e`: the job counts as completed though they failed."""
    stops = any(
        c.argv[:1] == ("set",) and any(w[0] in "-+" and "e" in w[1:] for w in c.argv[1:])
        for c in job.commands
    )
    last = job.commands[-1] if job.commands else None
    for launch in job.launches:
        after = (
            last is not None
            and last.line > launch.line
            and last.argv[:1] not in (("exit",), ("wait",), ("srun",))
        )
        if after and not stops and not launch.background:
            yield Said(launch.line, "if this fails, the job still counts as completed", "set -e at the top")


@rule(RULES, "no-launcher", "warning")
def no_launcher(job: Job) -> Iterator[Said]:
    """Several tasks, and nothing in the script that starts them: the program runs once, on the first node."""
    tasks = slurm.asked(job.options.values).tasks
    python = [c for c in job.commands if c.argv and PurePath(c.argv[0]).name.startswith("python")]
    if tasks and tasks > 1 and python and not job.launches:
        yield Said(
            python[-1].line, f"the job has {tasks} tasks, but this runs once", "srun --mpi=pmix before it"
        )


@rule(RULES, "ranks-exceed-tasks", "error")
def ranks_exceed_tasks(job: Job) -> Iterator[Said]:
    """mpirun with more ranks than the job has tasks: not enough slots."""
    tasks = slurm.asked(job.options.values).tasks
    for launch in job.launches:
        ranks = number(launch.parsed.get("np")) if launch.launcher == "mpirun" else None
        if ranks and tasks and ranks > tasks and "oversubscribe" not in launch.parsed:
            yield Said(
                launch.line,
                f"mpirun starts {ranks} ranks, the job has {tasks} tasks",
                "ask sbatch for more tasks",
            )

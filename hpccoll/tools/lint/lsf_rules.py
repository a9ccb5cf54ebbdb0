# SPDX-License-Identifier: Apache-2.0
"""Problems of jobs under LSF, and of jsrun's resource sets: one small function per rule.

The rules assume that nodes with jsrun are Summit's: 42 cores, 6 GPUs, 2 sockets.
"""

from collections.abc import Iterator
from pathlib import PurePath

from hpccoll.tools.lint import jsrun, lsf
from hpccoll.tools.lint.diagnostics import Problem, Rule, rule
from hpccoll.tools.lint.jsrun import SUMMIT, Sets, fit, fit_in_sockets
from hpccoll.tools.lint.script import Launch, Script
from hpccoll.tools.lint.script_rules import missing_folder

RULES: list[Rule] = []


def jsruns(script: Script) -> Iterator[tuple[Launch, Sets]]:
    """Yield the jsruns of a script that start an MPI program, with their resource sets."""
    for launch in script.launches:
        if launch.launcher == "jsrun" and launch.uses_mpi:
            yield launch, jsrun.read(launch.words)[0]


def known_jsruns(script: Script) -> Iterator[tuple[Launch, Sets]]:
    """Yield the jsruns whose sets have a shape that no unknown variable decides."""
    return (found for found in jsruns(script) if found[1].known)


@rule(RULES, "unknown-option", "error")
def unknown_option(script: Script) -> Iterator[Problem]:
    """An option or a value that bsub or jsrun does not have: the job is refused."""
    for line, problem in script.problems:
        yield Problem(line, problem, "correct it; `man bsub` has the list")
    for launch in script.launches:
        for problem in jsrun.read(launch.words)[2] if launch.launcher == "jsrun" else ():
            yield Problem(launch.line, problem, "correct it; `man jsrun` has the list")


@rule(RULES, "no-time-limit", "warning")
def no_time_limit(script: Script) -> Iterator[Problem]:
    """No -W: the queue's default decides."""
    if "W" not in script.options:
        yield Problem(script.head, "no -W", "say how long the job may run, as in #BSUB -W 2:00")


@rule(RULES, "time-limit-form", "error")
def time_limit_form(script: Script) -> Iterator[Problem]:
    """-W is [hours:]minutes; seconds, as Slurm has them, are not accepted."""
    if (text := script.options.get("W")) and lsf.run_limit(text) is None:
        yield Problem(script.line_of("W"), f"-W {text} is not [hours:]minutes", "#BSUB -W 2:00 is two hours")


@rule(RULES, "alloc-flags-twice", "error")
def alloc_flags_twice(script: Script) -> Iterator[Problem]:
    """-alloc_flags given twice: only one takes effect."""
    if len(lines := script.lines.get("alloc_flags", [])) > 1:
        yield Problem(lines[-1], "only one -alloc_flags takes effect", 'all in one, as in -alloc_flags "gpumps smt4"')


@rule(RULES, "warning-incomplete", "error")
def warning_incomplete(script: Script) -> Iterator[Problem]:
    """-wa without -wt, or the other way round: no warning is sent."""
    if ("wa" in script.options) != ("wt" in script.options):
        given = "wa" if "wa" in script.options else "wt"
        yield Problem(
            script.line_of(given), f"-{given} alone has no effect", "#BSUB -wa USR1 and #BSUB -wt 2 (minutes)"
        )


@rule(RULES, "signal-kills-script", "error")
def signal_kills_script(script: Script) -> Iterator[Problem]:
    """-wa without a trap: the signal reaches the script, too, and ends it."""
    signal = script.options.get("wa") or ""
    if signal and not any(command.argv[:1] == ("trap",) for command in script.commands):
        yield Problem(
            script.line_of("wa"),
            f"{signal} ends the script",
            f"trap : {signal} in the script; the ranks still get it",
        )


@rule(RULES, "no-warning-signal", "warning")
def no_warning_signal(script: Script) -> Iterator[Problem]:
    """-Q without -wa and -wt: at the time limit the job dies without saving."""
    if "Q" in script.options and "wa" not in script.options:
        yield Problem(script.line_of("Q"), "nothing tells the job that its time ends", "#BSUB -wa USR1 and #BSUB -wt 2")


@rule(RULES, "no-nodes", "error")
def no_nodes(script: Script) -> Iterator[Problem]:
    """No -nnodes: there is no allocation of compute nodes for jsrun."""
    if any(jsruns(script)) and "nnodes" not in script.options:
        yield Problem(script.head, "jsrun needs compute nodes, and -nnodes is not given", "#BSUB -nnodes 4")


@rule(RULES, "set-larger-than-node", "error")
def set_larger_than_node(script: Script) -> Iterator[Problem]:
    """A resource set larger than a node: jsrun waits for ever."""
    for launch, sets in known_jsruns(script):
        if fit(sets, SUMMIT) < 1:
            problem = f"a resource set has {sets.cores} cores and {sets.gpus} GPUs, which no node has"
            yield Problem(launch.line, problem, f"at most {SUMMIT.cores} cores and {SUMMIT.gpus} GPUs")


@rule(RULES, "sets-do-not-fit", "error")
def sets_do_not_fit(script: Script) -> Iterator[Problem]:
    """More resource sets than the nodes have room for: jsrun waits for ever."""
    nodes = lsf.sizes(script.options.values).nodes
    for launch, sets in known_jsruns(script):
        most = fit(sets, SUMMIT)
        if most and sets.per_host and sets.per_host > most:
            shape = f"{sets.cores} cores and {sets.gpus} GPUs"
            problem = f"--rs_per_host {sets.per_host} of {shape}, but a node has room for {most}"
            yield Problem(launch.line, problem, f"--rs_per_host {most}, or smaller sets")
        elif most and sets.sets and nodes and sets.sets > nodes * (sets.per_host or most):
            total = nodes * (sets.per_host or most)
            yield Problem(
                launch.line,
                f"--nrs {sets.sets}, but {nodes} nodes take {total}",
                f"--nrs {total}, or more -nnodes",
            )


@rule(RULES, "sets-span-sockets", "warning")
def sets_span_sockets(script: Script) -> Iterator[Problem]:
    """So many sets per node that one must span both sockets, and tasks in it: slow memory and a far GPU."""
    socket = SUMMIT.cores // SUMMIT.sockets
    for launch, sets in known_jsruns(script):
        if sets.bind and "bind" in launch.parsed and sets.cores % sets.bind == socket % sets.bind == 0:
            continue  # no task spans them
        wanted = sets.per_host or min(fit(sets, SUMMIT), sets.sets or 1)
        most = fit_in_sockets(sets, SUMMIT)
        if fit(sets, SUMMIT) >= wanted > most:
            yield Problem(
                launch.line,
                f"{wanted} resource sets per node, but only {most} fit if none spans both sockets",
                f"at most {socket} cores and {SUMMIT.gpus // SUMMIT.sockets} GPUs per socket",
            )


@rule(RULES, "nodes-idle", "warning")
def nodes_idle(script: Script) -> Iterator[Problem]:
    """Fewer sets than the nodes of the job take: some nodes are paid for and idle."""
    nodes = lsf.sizes(script.options.values).nodes
    for launch, sets in known_jsruns(script):
        if nodes and sets.sets and sets.per_host and sets.sets <= (nodes - 1) * sets.per_host:
            used = -(-sets.sets // sets.per_host)
            yield Problem(
                launch.line, f"{sets.sets} sets use {used} of {nodes} nodes", f"--nrs {nodes * sets.per_host}"
            )


@rule(RULES, "gpus-shared", "error")
def gpus_shared(script: Script) -> Iterator[Problem]:
    """More tasks than GPUs in a set: two ranks get one GPU, which NCCL and the GPUs' exclusive mode refuse."""
    flags = lsf.sizes(script.options.values).alloc_flags
    for launch, sets in known_jsruns(script):
        if sets.gpus and sets.tasks > sets.gpus and not {"gpumps", "gpudefault"} & set(flags):
            yield Problem(
                launch.line,
                f"{sets.tasks} tasks share {sets.gpus} GPU{'s' if sets.gpus > 1 else ''} of a set",
                "--tasks_per_rs 1 --gpu_per_rs 1",
            )


@rule(RULES, "cores-overbooked", "error")
def cores_overbooked(script: Script) -> Iterator[Problem]:
    """Tasks of a set bound to more cores than it has."""
    for launch, sets in known_jsruns(script):
        bound = sets.bind if sets.bind and "bind" in launch.parsed else 1
        if sets.tasks * bound > sets.cores:
            problem = f"{sets.tasks} tasks of {bound} cores in a set of {sets.cores}"
            yield Problem(launch.line, problem, f"--cpu_per_rs {sets.tasks * bound}")


@rule(RULES, "bound-to-one-core", "warning")
def bound_to_one_core(script: Script) -> Iterator[Problem]:
    """A set with several cores per task, but no --bind: the default packed:1 leaves a task one core."""
    for launch, sets in known_jsruns(script):
        each = sets.cores // sets.tasks
        if each > 1 and (sets.bind or each) < each:
            yield Problem(launch.line, f"a task has {each} cores but is bound to {sets.bind}", f"--bind packed:{each}")


@rule(RULES, "threads-exceed-cores", "error")
def threads_exceed_cores(script: Script) -> Iterator[Problem]:
    """OMP_NUM_THREADS above the hardware threads of a task's cores: the threads fight."""
    smt = lsf.sizes(script.options.values).smt
    for launch, sets in known_jsruns(script):
        text = launch.environment.get("OMP_NUM_THREADS", "")
        most = sets.cores // sets.tasks * smt
        if text.isdecimal() and int(text) > max(most, 1):
            yield Problem(
                launch.line,
                f"OMP_NUM_THREADS={text}, but a task has {most} hardware threads",
                f"OMP_NUM_THREADS={sets.cores // sets.tasks}",
            )


@rule(RULES, "survivors-wait", "warning")
def survivors_wait(script: Script) -> Iterator[Problem]:
    """No --exit_on_error: if a task dies, the others may wait until the time limit."""
    for launch, _ in jsruns(script):
        if launch.parsed.get("exit_on_error") in (None, "0"):
            yield Problem(launch.line, "if one task dies, the others stay until the time limit", "--exit_on_error 1")


@rule(RULES, "no-launcher", "error")
def no_launcher(script: Script) -> Iterator[Problem]:
    """A program without a launcher: it runs once, with -nnodes on a launch node that all users share."""
    python = [c for c in script.commands if c.argv and PurePath(c.argv[0]).name.startswith("python")]
    many = lsf.sizes(script.options.values)
    if python and not script.launches and (many.nodes or (many.slots or 1) > 1):
        yield Problem(python[-1].line, "this runs once, and not on the compute nodes", "jsrun or mpirun before it")


@rule(RULES, "ranks-exceed-slots", "error")
def ranks_exceed_slots(script: Script) -> Iterator[Problem]:
    """A call of mpirun with more ranks than the job has slots."""
    slots = lsf.sizes(script.options.values).slots
    for launch in script.launches:
        ranks = launch.parsed.get("np") if launch.launcher == "mpirun" else None
        if slots and ranks and ranks.isdecimal() and int(ranks) > slots:
            yield Problem(launch.line, f"mpirun starts {ranks} ranks, the job has {slots} slots", f"#BSUB -n {ranks}")


@rule(RULES, "log-not-named", "warning")
def log_not_named(script: Script) -> Iterator[Problem]:
    """No -o: the output comes by email, if at all."""
    if not {"o", "oo"} & set(script.options.values):
        yield Problem(script.head, "no -o: the output goes into an email", "#BSUB -o job.%J.out")


@rule(RULES, "output-folder-missing", "warning")
def output_folder_missing(script: Script) -> Iterator[Problem]:
    """-o or -e into a folder that does not exist: the output is lost (LSF makes a folder named as `-o logs/`)."""
    for option in ("o", "oo", "e", "eo"):
        file = script.options.get(option) or ""
        if "$" in file or file.endswith("/"):
            continue
        if folder := missing_folder(file, script.options.get("cwd") or ""):
            problem = f"-{option} {file}, but there is no folder {folder} here: the output is lost"
            yield Problem(script.line_of(option), problem, f"mkdir -p {folder} before bsub")

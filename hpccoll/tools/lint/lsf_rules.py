# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with jobs under LSF, and with jsrun's resource sets: one small function each.

Nodes with jsrun are taken to be Summit's: 42 cores, 6 GPUs, 2 sockets.
"""

from collections.abc import Iterator
from pathlib import PurePath

from hpccoll.tools.lint import jsrun, lsf
from hpccoll.tools.lint.findings import Rule, Said, rule
from hpccoll.tools.lint.job import Job, Launch
from hpccoll.tools.lint.jsrun import SUMMIT, Sets, fit, fit_in_sockets
from hpccoll.tools.lint.script_rules import missing_folder

RULES: list[Rule] = []


def jsruns(job: Job) -> Iterator[tuple[Launch, Sets]]:
    """The jsruns of a job that start an MPI program, with their resource sets."""
    for launch in job.launches:
        if launch.launcher == "jsrun" and launch.speaks_mpi:
            yield launch, jsrun.read(launch.words)[0]


def known_jsruns(job: Job) -> Iterator[tuple[Launch, Sets]]:
    """Those the shape of whose sets does not wait for a variable."""
    return (one for one in jsruns(job) if one[1].known)


@rule(RULES, "unknown-option", "error")
def unknown_option(job: Job) -> Iterator[Said]:
    """An option or a value that bsub or jsrun does not have: the job is refused."""
    for line, problem in job.problems:
        yield Said(line, problem, "correct it; `man bsub` has the list")
    for launch in job.launches:
        for problem in jsrun.read(launch.words)[2] if launch.launcher == "jsrun" else ():
            yield Said(launch.line, problem, "correct it; `man jsrun` has the list")


@rule(RULES, "no-time-limit", "warning")
def no_time_limit(job: Job) -> Iterator[Said]:
    """No -W: the queue's default decides."""
    if "W" not in job.options:
        yield Said(job.head, "no -W", "say how long the job may run, as in #BSUB -W 2:00")


@rule(RULES, "time-limit-form", "error")
def time_limit_form(job: Job) -> Iterator[Said]:
    """-W is [hours:]minutes; seconds, as Slurm has them, are not accepted."""
    if (text := job.options.get("W")) and lsf.run_limit(text) is None:
        yield Said(job.line_of("W"), f"-W {text} is not [hours:]minutes", "#BSUB -W 2:00 is two hours")


@rule(RULES, "alloc-flags-twice", "error")
def alloc_flags_twice(job: Job) -> Iterator[Said]:
    """-alloc_flags given twice: only one is heeded."""
    if len(lines := job.lines.get("alloc_flags", [])) > 1:
        yield Said(
            lines[-1], "only one -alloc_flags is heeded", 'all in one, as in -alloc_flags "gpumps smt4"'
        )


@rule(RULES, "warning-incomplete", "error")
def warning_incomplete(job: Job) -> Iterator[Said]:
    """-wa without -wt, or the other way round: no warning is sent."""
    if ("wa" in job.options) != ("wt" in job.options):
        given = "wa" if "wa" in job.options else "wt"
        yield Said(
            job.line_of(given), f"-{given} alone has no effect", "#BSUB -wa USR1 and #BSUB -wt 2 (minutes)"
        )


@rule(RULES, "signal-kills-script", "error")
def signal_kills_script(job: Job) -> Iterator[Said]:
    """-wa without a trap: the signal reaches the script, too, and ends it."""
    signal = job.options.get("wa") or ""
    if signal and not any(command.argv[:1] == ("trap",) for command in job.commands):
        yield Said(
            job.line_of("wa"),
            f"{signal} ends the script",
            f"trap : {signal} in the script; the ranks still get it",
        )


@rule(RULES, "no-warning-signal", "warning")
def no_warning_signal(job: Job) -> Iterator[Said]:
    """-Q without -wa and -wt: at the time limit the job dies without saving."""
    if "Q" in job.options and "wa" not in job.options:
        yield Said(
            job.line_of("Q"), "nothing tells the job that its time ends", "#BSUB -wa USR1 and #BSUB -wt 2"
        )


@rule(RULES, "no-nodes", "error")
def no_nodes(job: Job) -> Iterator[Said]:
    """No -nnodes: there is no allocation of compute nodes for jsrun."""
    if any(jsruns(job)) and "nnodes" not in job.options:
        yield Said(job.head, "jsrun needs compute nodes, and -nnodes is not given", "#BSUB -nnodes 4")


@rule(RULES, "set-larger-than-node", "error")
def set_larger_than_node(job: Job) -> Iterator[Said]:
    """A resource set larger than a node: jsrun waits for ever."""
    for launch, sets in known_jsruns(job):
        if fit(sets, SUMMIT) < 1:
            problem = f"a resource set has {sets.cores} cores and {sets.gpus} GPUs, which no node has"
            yield Said(launch.line, problem, f"at most {SUMMIT.cores} cores and {SUMMIT.gpus} GPUs")


@rule(RULES, "sets-do-not-fit", "error")
def sets_do_not_fit(job: Job) -> Iterator[Said]:
    """More resource sets than the nodes have room for: jsrun waits for ever."""
    nodes = lsf.asked(job.options.values).nodes
    for launch, sets in known_jsruns(job):
        room = fit(sets, SUMMIT)
        if room and sets.per_host and sets.per_host > room:
            shape = f"{sets.cores} cores and {sets.gpus} GPUs"
            problem = f"--rs_per_host {sets.per_host} of {shape}, but a node has room for {room}"
            yield Said(launch.line, problem, f"--rs_per_host {room}, or smaller sets")
        elif room and sets.sets and nodes and sets.sets > nodes * (sets.per_host or room):
            most = nodes * (sets.per_host or room)
            yield Said(
                launch.line,
                f"--nrs {sets.sets}, but {nodes} nodes take {most}",
                f"--nrs {most}, or more -nnodes",
            )


@rule(RULES, "sets-span-sockets", "warning")
def sets_span_sockets(job: Job) -> Iterator[Said]:
    """So many sets on a node that one must span both sockets: slow memory and a far GPU."""
    for launch, sets in known_jsruns(job):
        wanted = sets.per_host or min(fit(sets, SUMMIT), sets.sets or 1)
        room = fit_in_sockets(sets, SUMMIT)
        if fit(sets, SUMMIT) >= wanted > room:
            yield Said(
                launch.line,
                f"{wanted} sets a node, but only {room} without one that spans sockets",
                f"at most {SUMMIT.cores // SUMMIT.sockets} cores and {SUMMIT.gpus // SUMMIT.sockets} GPUs a socket",
            )


@rule(RULES, "nodes-idle", "warning")
def nodes_idle(job: Job) -> Iterator[Said]:
    """Fewer sets than the nodes of the job take: some nodes are paid for and idle."""
    nodes = lsf.asked(job.options.values).nodes
    for launch, sets in known_jsruns(job):
        if nodes and sets.sets and sets.per_host and sets.sets <= (nodes - 1) * sets.per_host:
            used = -(-sets.sets // sets.per_host)
            yield Said(
                launch.line, f"{sets.sets} sets use {used} of {nodes} nodes", f"--nrs {nodes * sets.per_host}"
            )


@rule(RULES, "gpus-shared", "error")
def gpus_shared(job: Job) -> Iterator[Said]:
    """More tasks than GPUs in a set: two ranks get one GPU, which NCCL and the GPUs' exclusive mode refuse."""
    flags = lsf.asked(job.options.values).alloc_flags
    for launch, sets in known_jsruns(job):
        if sets.gpus and sets.tasks > sets.gpus and not {"gpumps", "gpudefault"} & set(flags):
            yield Said(
                launch.line,
                f"{sets.tasks} tasks share {sets.gpus} GPUs of a set",
                "--tasks_per_rs 1 --gpu_per_rs 1",
            )


@rule(RULES, "cores-overbooked", "error")
def cores_overbooked(job: Job) -> Iterator[Said]:
    """Tasks of a set bound to more cores than it has."""
    for launch, sets in known_jsruns(job):
        bound = sets.bind if sets.bind and "bind" in launch.parsed else 1
        if sets.tasks * bound > sets.cores:
            problem = f"{sets.tasks} tasks of {bound} cores in a set of {sets.cores}"
            yield Said(launch.line, problem, f"--cpu_per_rs {sets.tasks * bound}")


@rule(RULES, "bound-to-one-core", "warning")
def bound_to_one_core(job: Job) -> Iterator[Said]:
    """A set with several cores a task, but no --bind: the default packed:1 leaves a task one core."""
    for launch, sets in known_jsruns(job):
        each = sets.cores // sets.tasks
        if each > 1 and (sets.bind or each) < each:
            yield Said(
                launch.line, f"a task has {each} cores but is bound to {sets.bind}", f"--bind packed:{each}"
            )


@rule(RULES, "threads-exceed-cores", "error")
def threads_exceed_cores(job: Job) -> Iterator[Said]:
    """OMP_NUM_THREADS above the hardware threads of a task's cores: the threads fight."""
    smt = lsf.asked(job.options.values).smt
    for launch, sets in known_jsruns(job):
        text = launch.environment.get("OMP_NUM_THREADS", "")
        room = sets.cores // sets.tasks * smt
        if text.isdecimal() and int(text) > max(room, 1):
            yield Said(
                launch.line,
                f"OMP_NUM_THREADS={text}, but a task has {room} hardware threads",
                f"OMP_NUM_THREADS={sets.cores // sets.tasks}",
            )


@rule(RULES, "survivors-wait", "warning")
def survivors_wait(job: Job) -> Iterator[Said]:
    """No --exit_on_error: if a task dies, the others may wait until the time limit."""
    for launch, _ in jsruns(job):
        if launch.parsed.get("exit_on_error") in (None, "0"):
            yield Said(
                launch.line, "if one task dies, the others stay until the time limit", "--exit_on_error 1"
            )


@rule(RULES, "no-launcher", "error")
def no_launcher(job: Job) -> Iterator[Said]:
    """A program started by nothing: it runs once, with -nnodes on a launch node that all users share."""
    python = [c for c in job.commands if c.argv and PurePath(c.argv[0]).name.startswith("python")]
    many = lsf.asked(job.options.values)
    if python and not job.launches and (many.nodes or (many.slots or 1) > 1):
        yield Said(
            python[-1].line, "this runs once, and not on the compute nodes", "jsrun or mpirun before it"
        )


@rule(RULES, "ranks-exceed-slots", "error")
def ranks_exceed_slots(job: Job) -> Iterator[Said]:
    """Mpirun with more ranks than the job has slots."""
    slots = lsf.asked(job.options.values).slots
    for launch in job.launches:
        ranks = launch.parsed.get("np") if launch.launcher == "mpirun" else None
        if slots and ranks and ranks.isdecimal() and int(ranks) > slots:
            yield Said(
                launch.line, f"mpirun starts {ranks} ranks, the job has {slots} slots", f"#BSUB -n {ranks}"
            )


@rule(RULES, "log-not-named", "warning")
def log_not_named(job: Job) -> Iterator[Said]:
    """No -o: the output comes by mail, if at all."""
    if not {"o", "oo"} & set(job.options.values):
        yield Said(job.head, "no -o: the output goes into a mail", "#BSUB -o job.%J.out")


@rule(RULES, "output-folder-missing", "warning")
def output_folder_missing(job: Job) -> Iterator[Said]:
    """-o or -e into a folder that is not there: the output is lost (a folder by itself, `-o logs/`, is made)."""
    for option in ("o", "oo", "e", "eo"):
        file = job.options.get(option) or ""
        if "$" in file or file.endswith("/"):
            continue
        if folder := missing_folder(file, job.options.get("cwd") or ""):
            problem = f"-{option} {file}, but there is no folder {folder} here: the output is lost"
            yield Said(job.line_of(option), problem, f"mkdir -p {folder} before bsub")

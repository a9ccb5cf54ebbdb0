# SPDX-License-Identifier: Apache-2.0
"""jsrun of the stand-in: starts the tasks by Open MPI's mpirun on the hosts that its resource sets choose.

The ranks get the variables that a jsrun was seen to set (Trilinos' pull request 5598 shows those of a Sierra-like
machine), and their cores: core N is processor N of this machine, modulo the number that it has.
"""

import json
import os
import shlex
import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from resource_sets import SIMPLE_SMPIARGS, SUMMIT, Refused, Task, parser, place, places


def main() -> None:
    if sys.argv[1] == "--task":
        start_task(Path(sys.argv[2]), sys.argv[3:])
    options = parser().parse_args(sys.argv[1:])
    try:
        tasks = place(options, compute_hosts())
        launcher = mpirun(tasks, options.smpiargs)
    except Refused as error:
        raise SystemExit(f"jsrun (stand-in): {error}") from None
    for word in options.env:
        name, given, value = word.partition("=")
        if given:
            os.environ[name] = value
    step = Path(os.environ["STAND_IN_FOLDER"], f"step-{os.getpid()}.json")
    step.write_text(json.dumps([vars(task) for task in tasks]))
    own = [sys.executable, "-S", "-E", __file__, "--task", str(step)]
    os.execvp(launcher[0], [*launcher, *own, *options.program])


def compute_hosts() -> list[str]:
    """Read the job's hosts; the first one is the launch node, where the script runs."""
    if "LSB_DJOB_HOSTFILE" not in os.environ:
        raise Refused("outside of a job")
    return list(dict.fromkeys(Path(os.environ["LSB_DJOB_HOSTFILE"]).read_text().split()))[1:]


def mpirun(tasks: list[Task], smpiargs: str) -> list[str]:
    """Return the call of mpirun that puts each rank on its host."""
    hosts = [(host, len(list(group))) for host, group in groupby(task.host for task in tasks)]
    if len(dict(hosts)) != len(hosts):
        raise Refused("neighbouring ranks on different hosts (mpirun would be given a host twice)")
    words = shlex.split(smpiargs)
    extra = []
    while words:
        word = words.pop(0)
        if word in ("-mca", "--mca") and len(words) > 1:
            extra += ["--mca", words.pop(0), words.pop(0)]
        elif word not in SIMPLE_SMPIARGS:
            raise Refused(f"--smpiargs {word}")
    named = ",".join(f"{host}:{count}" for host, count in hosts)
    return ["mpirun", "-np", str(len(tasks)), "--host", named, "--map-by", "slot", "--bind-to", "none", *extra]


def start_task(step: Path, program: list[str]) -> None:
    """Become a rank's program."""
    tasks = [Task(**task) for task in json.loads(step.read_text())]
    task = tasks[int(os.environ["OMPI_COMM_WORLD_RANK"])]
    smt = int(os.environ["STAND_IN_SMT"])
    place = {"RANK": task.rank, "SIZE": len(tasks), "LOCAL_RANK": task.local_rank}
    place["LOCAL_SIZE"] = sum(other.host == task.host for other in tasks)
    os.environ |= {f"JSM_NAMESPACE_{name}": str(value) for name, value in place.items()}
    os.environ |= {"JSM_NAMESPACE_ID": step.stem.removeprefix("step-"), "STAND_IN_PLACES": places(task, SUMMIT, smt)}
    if SUMMIT.first_thread(task.cores[-1]) + smt <= (os.cpu_count() or 1):  # else OpenMP complains of them
        os.environ |= {"OMP_PROC_BIND": "true", "OMP_PLACES": os.environ["STAND_IN_PLACES"]}
    os.environ.setdefault("OMP_NUM_THREADS", str(smt * len(task.cores)))
    if task.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, task.gpus))
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[core % len(processors)] for core in task.cores})
    try:
        os.execvp(program[0], program)
    except OSError as error:
        raise SystemExit(f"jsrun (stand-in): {program[0]}: {error}") from None


if __name__ == "__main__":
    main()

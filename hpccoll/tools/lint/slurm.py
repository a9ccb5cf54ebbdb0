# SPDX-License-Identifier: Apache-2.0
"""The options of sbatch and srun (man pages of Slurm 22.05, and later options), and the sizes that a job asks for."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpccoll.tools.lint.options import Grammar, Option

BOTH = (
    "account:A acctg-freq bb bbf begin:b chdir:D cluster-constraint clusters:M comment constraint:C container "
    "core-spec:S cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot dependency:d "
    "distribution:m error:e exclude:x export extra-node-info:B gid gpu-bind gpu-freq gpus:G gpus-per-node "
    "gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J licenses:L mail-type mail-user mcs-label "
    "mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile:F nodelist:w nodes:N ntasks:n ntasks-per-core "
    "ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output:o partition:p power prefer priority profile "
    "qos:q reservation signal sockets-per-node switches thread-spec threads-per-core time:t time-min tmp tres-bind "
    "tres-per-task uid wckey "
    # Pyxis, a plugin of Slurm
    "container-image container-mounts container-workdir container-name container-save container-env"
)
BOTH_FLAGS = (
    "contiguous help:h hold:H overcommit:O oversubscribe:s quiet:Q reboot spread-job test-only usage use-min-nodes "
    "verbose:v version:V no-container-mount-home container-mount-home container-remap-root no-container-remap-root "
    "container-writable container-readonly no-container-entrypoint container-entrypoint"
)
BOTH_MAYBE = "exclusive nice no-kill:k propagate"
SIZES = {
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus", "gpus-per-node", "gpus-per-task", "gres",
}  # fmt: skip
"""Options that say how large a job is."""
SBATCH = "array:a batch export-file get-user-env wait-all-nodes wrap"
SBATCH_FLAGS = "ignore-pbs kill-on-invalid-dep no-requeue parsable requeue wait:W"
SRUN = (
    "accel-bind bcast-exclude cpu-bind epilog het-group jobid mpi msg-timeout prolog relative:r slurmd-debug "
    "task-epilog task-prolog threads:T wait:W"
)
SRUN_FLAGS = (
    "disable-status:X exact label:l multi-prog no-allocate:Z overlap preserve-env:E pty quit-on-interrupt unbuffered:u "
)
SRUN_MAYBE = "bcast compress immediate:I kill-on-bad-exit:K resv-ports send-libs x11"


def _options(words: str, value: str) -> list[Option]:
    return [Option(word.partition(":")[0], word.partition(":")[2], value) for word in words.split()]


_SHARED = _options(BOTH, "yes") + _options(BOTH_FLAGS, "no") + _options(BOTH_MAYBE, "maybe")
sbatch = Grammar("sbatch", _SHARED + _options(SBATCH, "yes") + _options(SBATCH_FLAGS, "no"))
srun = Grammar("srun", _SHARED + _options(SRUN, "yes") + _options(SRUN_FLAGS, "no") + _options(SRUN_MAYBE, "maybe"))


def number(text: str | None) -> int | None:
    """Read `4`, or the first number of `2-4`; None for anything else, as for a variable that only the job knows."""
    found = re.fullmatch(r"([0-9]+)(?:-[0-9]+)?", text or "")
    return int(found[1]) if found else None


def time_limit(text: str) -> float | None:
    """Read a time limit `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`.

    :returns: minutes; infinity for no limit; None if the text is no time limit
    """
    if text.lower() in ("infinite", "unlimited"):
        return math.inf
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text, re.ASCII)
    if not found:
        return None
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[1] or found[4]:
        return days * 1440 + first * 60 + second + third / 60
    return first + second / 60


def gpu_number(text: str | None) -> int | None:
    """Read the number of GPUs from `4` or `a100:4`."""
    last = (text or "").rpartition(":")[2]
    return int(last) if last.isdecimal() else None


@dataclass(frozen=True)
class Sizes:
    """The sizes that a job or a step asks for; None: not given, or known only when it runs."""

    nodes: int | None
    tasks: int | None
    tasks_per_node: int | None
    cpus_per_task: int | None
    gpus_per_node: int | None


def sizes(values: Mapping[str, str]) -> Sizes:
    """Read the sizes from options, and derive those that follow from others."""
    nodes, tasks = number(values.get("nodes")), number(values.get("ntasks"))
    per_node, cpus = number(values.get("ntasks-per-node")), number(values.get("cpus-per-task"))
    if tasks is None and nodes is not None:
        tasks = nodes * (per_node or 1)
    if per_node is None and tasks is not None and nodes:
        per_node = math.ceil(tasks / nodes)
    return Sizes(nodes, tasks, per_node, cpus, _gpus_per_node(values, nodes, per_node))


def _gpus_per_node(values: Mapping[str, str], nodes: int | None, per_node: int | None) -> int | None:
    direct = gpu_number(values.get("gpus-per-node")) or _gres(values.get("gres"))
    if direct is not None:
        return direct
    if (each := gpu_number(values.get("gpus-per-task"))) and per_node:
        return each * per_node
    total = gpu_number(values.get("gpus"))
    return math.ceil(total / nodes) if total and nodes else total


def _gres(text: str | None) -> int | None:
    """Count the GPUs of `gpu`, `gpu:4` or `gpu:a100:4,nvme:1`."""
    for part in (text or "").split(","):
        if part.partition(":")[0] == "gpu":
            return gpu_number(part) or 1
    return None


def variables(sizes: Sizes) -> dict[str, str]:
    """Return the variables that Slurm will set in a batch script, as far as the sizes tell them."""
    known = {
        "SLURM_NNODES": sizes.nodes,
        "SLURM_JOB_NUM_NODES": sizes.nodes,
        "SLURM_NTASKS": sizes.tasks,
        "SLURM_NPROCS": sizes.tasks,
        "SLURM_NTASKS_PER_NODE": sizes.tasks_per_node,
        "SLURM_CPUS_PER_TASK": sizes.cpus_per_task,
        "SLURM_GPUS_ON_NODE": sizes.gpus_per_node,
        "SLURM_GPUS_PER_NODE": sizes.gpus_per_node,
    }
    return {name: str(value) for name, value in known.items() if value is not None}

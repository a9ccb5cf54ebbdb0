# SPDX-License-Identifier: Apache-2.0
"""Open MPI 4 (ORTE) and 5 (PRRTE), which differ in the options that let ranks share cores."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping

from hpccoll.tools.launch.job import Job, LaunchError, Plan
from hpccoll.tools.launch.standard_input import FOR_RANK_0

SESSIONS = "PRTE_MCA_prte_local_tmpdir_base"
"""The variable with the folder where mpirun of Open MPI 5 keeps the files of its session on this host."""

ONE_DASH = ("-bind-to", "-map-by", "-rank-by")
"""Options as Horovod's and Hydra's users write them, which Open MPI 5 takes with two dashes only."""


def version(banner: str) -> int | None:
    """Read the major version from what `mpirun --version` printed; None if it is not Open MPI's banner."""
    found = re.search(r"\(Open MPI\) (\d+)\.", banner)
    return int(found[1]) if found else None


def plan(job: Job, launcher: str, major: int) -> Plan:
    """Plan a job for Open MPI: bind each rank to its share of the cores, or to nothing if ranks share cores.

    The plan gives a slot to each rank, because Open MPI counts cores as slots and refuses more ranks. It does not leave
    binding to Open MPI, whose default of one core (up to two ranks) would hold the program's threads and the progress
    thread on one core.

    :param major: the major version of Open MPI
    :raises LaunchError: the folder for the output has a name that mpirun cannot take
    """
    argv = [launcher, "-np", str(job.ranks)]
    if job.root:
        argv += ["--allow-run-as-root"]
    if job.hosts:
        argv += ["--host", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    elif not job.allocated:
        argv += ["--host", f"localhost:{job.ranks}"]
    argv += binding(job, major)
    if ":" in job.output or "," in job.output:  # it would read options of its own there, and says only that
        raise LaunchError(f"--output {job.output}: mpirun of Open MPI takes no folder with a colon or a comma")
    if job.output:  # with dir= Open MPI 5 loses a rank's standard output or its standard error
        argv += ["--output", f"file={job.output}/rank"] if major >= 5 else ["--output-filename", job.output]
    options, command = fed(job, major)
    argv += options
    argv += [f"-{word}" if word in ONE_DASH else word for word in job.launcher_options]
    for name in sorted(job.exported):
        argv += ["-x", name]
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"} if job.oversubscribed else {}
    return Plan((*argv, *command), {**job.exported, **yielding}, {**job.defaults, **transports(job, major)})


def fed(job: Job, major: int) -> tuple[list[str], tuple[str, ...]]:
    """The options for standard input, and the command of the ranks.

    mpirun of Open MPI 5 never tells rank 0 that its input has ended, even an empty one. It was seen to forward large
    inputs wrongly (PRRTE's issue 2579), and it reads no terminal, because it has a session of its own. So rank 0 opens
    the input itself, where it can.
    """
    if major < 5 or job.input is None or "--stdin" in job.launcher_options:
        return [], job.command
    if job.input.is_empty:
        return ["--stdin", "none"], job.command
    if not job.local or not shutil.which(job.command[0], path=job.path):  # else mpirun would not say what is missing
        return [], job.command
    return ["--stdin", "none"], (*FOR_RANK_0, *job.input.words, *job.command)


def transports(job: Job, major: int) -> dict[str, str]:
    """The variable that leaves out Open MPI's transport for remote memory over libfabric, on one machine.

    Ranks of one machine do not need it, and without a fabric Open MPI 5 sleeps for a second in MPI_Init when it puts
    the transport away (mca_btl_ofi_component_close).
    """
    return {"OMPI_MCA_btl": "^ofi"} if job.local and major >= 5 else {}


def binding(job: Job, major: int) -> list[str]:
    """The options that place and bind ranks. Where the user gives one of them, only what lets ranks share cores."""
    sharing = ["--map-by", "slot:OVERSUBSCRIBE"] if major >= 5 else ["--oversubscribe"]
    if job.binding_options:
        return [] if major >= 5 and "map-by" in job.binding_options else sharing
    if job.cores_per_rank:
        return ["--map-by", f"slot:PE={job.cores_per_rank}", "--bind-to", "core"]
    return [*sharing, "--bind-to", "none"]


@contextlib.contextmanager
def own_session_folder(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Let mpirun keep its session's files in a new folder, which is removed afterwards.

    Open MPI 5 names them only after its process number. A killed mpirun leaves them behind, and a later mpirun with the
    same process number ends with "The PMIx server's listener thread failed to start".

    :param environment: the environment of mpirun; a folder that it names holds the new one
    :returns: the environment to start mpirun with
    """
    if "PRTE_MCA_prte_tmpdir_base" in environment:  # the user's, for all hosts; PRRTE refuses both variables
        yield dict(environment)
        return
    with tempfile.TemporaryDirectory(
        prefix="hpccoll-run-", dir=environment.get(SESSIONS), ignore_cleanup_errors=True
    ) as folder:
        yield {**environment, SESSIONS: folder}

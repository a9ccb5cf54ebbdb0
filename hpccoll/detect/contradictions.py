# SPDX-License-Identifier: Apache-2.0
"""Where the launcher and MPI tell different stories.

A launcher that speaks another process-management protocol than the MPI library starts N processes that each believe
to be alone. N training runs that overwrite each other's files are worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpccoll.detect.place import Place
from hpccoll.detect.search import places

__all__ = ["contradiction", "singleton_remedy", "slurm_pmix_risk", "tasks"]

_MEANT = "If this is meant, set HPCCOLL_TRUST_MPI=1."


def tasks(env: Mapping[str, str]) -> int:
    """Tasks of the job step that a launcher of MPI jobs started this process in; 0: none did."""
    return next((found.size for found in places(env) if found.mpi and found.size is not None), 0)


def singleton_remedy(env: Mapping[str, str], size: int) -> str:
    """Return "" if a World of `size` ranks fits what the launchers say, else what is wrong and what to do."""
    if size > 1:
        return ""
    for closer, found in enumerate(places(env)):
        if (found.size or 1) > 1 and not (closer and found.daemons):
            return _alone(found)
    return ""


def _alone(found: Place) -> str:
    said = f"{found.launcher} started {found.size} tasks ({found.size_said_by}={found.size})"
    meant = "If a World of one rank is meant, set HPCCOLL_ALLOW_SINGLETON=1."
    if not found.mpi:
        return (
            f"{said}, of which MPI knows nothing: this process would be alone in its World. Use "
            f'torch.distributed.init_process_group("hpccoll"), or start the job with `hpccoll run`. {meant}'
        )
    return (
        f"{said} but MPI says that this process is alone: mpi4py's "
        "MPI library and the launcher do not speak the same protocol. Start the job with the mpirun of that "
        "MPI library (`hpccoll run` does), or under Slurm with a matching `srun --mpi=...` (`srun --mpi=list` "
        f"shows what there is). {meant}"
    )


def contradiction(said: Sequence[Place | None], libraries: Sequence[str]) -> str:
    """Return "" if the ranks of MPI_COMM_WORLD fit what their launchers say, else what is wrong and what to do.

    :param said: what the launcher of each rank says, in order of the ranks
    :param libraries: the MPI library of each rank, as it calls itself
    """
    releases = [library.split(",")[0] for library in libraries]  # then come who built it and when
    for rank, release in enumerate(releases):
        if release != releases[0]:
            return (
                f"rank 0 uses {releases[0]}, rank {rank} uses {release}: ranks of one job must share an MPI library. "
                f"Load the same modules and the same Python on all nodes. {_MEANT}"
            )
    return _of_numbers([place if place and place.mpi else None for place in said])


def _of_numbers(said: Sequence[Place | None]) -> str:
    first: dict[int, int] = {}
    for rank, place in enumerate(said):
        if place is None:
            continue
        if place.size is not None and place.size != len(said):
            return (
                f"{place.launcher} started {place.size} tasks ({place.size_said_by}={place.size}), MPI has {len(said)} "
                "ranks: two launchers are at work, or MPI was given a part of the step. Start the job with one of "
                f"them: `srun python ...` without mpirun, or mpirun without srun. {_MEANT}"
            )
        if place.rank is not None and first.setdefault(place.rank, rank) != rank:
            return (
                f"ranks {first[place.rank]} and {rank} of MPI are both number {place.rank} for {place.launcher} "
                f"({place.said_by}): the variables are another launcher's, or were handed on. Start the job with one "
                f"launcher, and do not export {place.said_by}. {_MEANT}"
            )
    return ""


def slurm_pmix_risk(env: Mapping[str, str], library: str) -> str:
    """Return "" unless MPI_Init may fail in this step of Slurm (see detect.pmix); else why, and what to do.

    :param library: MPI_Get_library_version's text
    """
    server = re.match(r"[34]\.[\d.]+", env.get("PMIX_VERSION", ""))
    tasks = [int(n) for n in re.findall(r"(?:^|,)(\d+)", env.get("SLURM_STEP_TASKS_PER_NODE", ""))]
    under_pmix = env.get("SLURM_MPI_TYPE", "").startswith("pmix")
    if not (under_pmix and server and max(tasks, default=0) >= 3 and library.startswith("Open MPI v5")):
        return ""
    return (
        f"Open MPI 5 under srun with Slurm's PMIx {server[0]} and {max(tasks)} ranks a node: MPI_Init fails where "
        "Open MPI does not learn from that PMIx how many ranks its node has. Start the job with mpirun inside the "
        "allocation (`hpccoll run` does), use Open MPI 4.1, or at most 2 ranks a node"
    )

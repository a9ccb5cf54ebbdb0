# SPDX-License-Identifier: Apache-2.0
"""Contradictions between the launcher and MPI.

A launcher that uses another process-management protocol than the MPI library starts N processes that each believe
to be alone. N training runs that overwrite each other's files are worse than an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.compared import Compared, from_list
from hpccoll.detect.job_place import Place
from hpccoll.detect.search import places

__all__ = ["LaunchProblem", "contradiction", "contradiction_between", "singleton_problem", "slurm_pmix_risk", "tasks"]

_TRUST = "If this is meant, set HPCCOLL_TRUST_MPI=1."


@dataclass(frozen=True)
class LaunchProblem:
    """A launch that cannot work. Its text has both fields."""

    seen: str
    """The contradiction, without a full stop at its end."""
    remedy: str
    """The remedy for the user, in sentences."""

    def __str__(self) -> str:
        return f"{self.seen}. {self.remedy}"


def tasks(env: Mapping[str, str]) -> int:
    """Count the tasks of the job step that a launcher of MPI jobs started this process in.

    :returns: the number of tasks; 0 if no launcher of MPI jobs started this process
    """
    return next((found.size for found in places(env) if found.mpi and found.size is not None), 0)


def singleton_problem(env: Mapping[str, str], size: int) -> LaunchProblem | None:
    """Compare a World of `size` ranks with the launchers: a process must not be alone among several tasks.

    :returns: None if the World agrees with the launchers
    """
    if size > 1:
        return None
    for closer, found in enumerate(places(env)):
        if (found.size or 1) > 1 and not (closer and found.daemons):
            return _alone(found)
    return None


def _alone(found: Place) -> LaunchProblem:
    started = f"{found.launcher} started {found.size} tasks ({found.size_variable}={found.size})"
    singleton = "If a World of one rank is meant, set HPCCOLL_ALLOW_SINGLETON=1."
    if not found.mpi:
        return LaunchProblem(
            f"{started}, of which MPI knows nothing: this process would be alone in its World",
            'Use hpccoll.torch (its init(), or torch.distributed.init_process_group("hpccoll")), or start the job with '
            "`hpccoll run`. " + singleton,
        )
    return LaunchProblem(
        f"{started} but MPI says that this process is alone: mpi4py's MPI library and the launcher do not use the "
        "same protocol",
        "Start the job with the mpirun of that MPI library (`hpccoll run` does), or under Slurm with a matching "
        f"`srun --mpi=...` (`srun --mpi=list` shows the choices). {singleton}",
    )


def contradiction(
    reported: Compared[Place | None], libraries: Compared[str], numbers: np.ndarray
) -> LaunchProblem | None:
    """Compare the ranks of MPI_COMM_WORLD with the variables of their launchers.

    :param reported: the place of each rank by its launcher, without its number and local number
    :param libraries: the text of MPI_Get_library_version of each rank
    :param numbers: the number that its launcher gave each rank; negative: none
    :returns: the first contradiction, the same on all ranks; None if there is none
    """
    releases = libraries.map(lambda library: library.split(",")[0])  # the builder's name and date follow the comma
    if not releases.alike:
        return LaunchProblem(
            f"rank 0 uses {releases.values[0]}, rank {releases.first(1)} uses {releases.values[1]}: ranks of one job "
            "must share an MPI library",
            f"Load the same modules and the same Python on all nodes. {_TRUST}",
        )
    wrong = [(rank, _another_size(place, len(numbers))) for rank, place in _wrong_sizes(reported, len(numbers))]
    twice = _given_twice(reported, numbers)
    return min([*wrong, *twice], key=lambda found: found[0], default=(0, None))[1]


def contradiction_between(reported: Sequence[Place | None], libraries: Sequence[str]) -> LaunchProblem | None:
    """Like `contradiction`, for a process that has the facts of all ranks.

    :param reported: the place of each rank by its launcher, in order of the ranks
    :param libraries: the MPI library of each rank
    """
    numbers = np.array([-1 if place is None or place.rank is None else place.rank for place in reported])
    return contradiction(
        from_list(place and place.without_numbers() for place in reported), from_list(libraries), numbers
    )


def _wrong_sizes(reported: Compared[Place | None], size: int) -> Iterator[tuple[int, Place]]:
    for i, place in enumerate(reported.values):
        if place and place.mpi and place.size not in (None, size):
            yield reported.first(i), place


def _another_size(place: Place, size: int) -> LaunchProblem:
    return LaunchProblem(
        f"{place.launcher} started {place.size} tasks ({place.size_variable}={place.size}), MPI has {size} ranks: two "
        "launchers are at work, or MPI was given a part of the step",
        "Start the job with one of them: `srun python ...` without mpirun, or mpirun without srun. " + _TRUST,
    )


def _given_twice(reported: Compared[Place | None], numbers: np.ndarray) -> Iterator[tuple[int, LaunchProblem]]:
    """Find the first rank with the number of another rank."""
    of_mpi = [i for i, place in enumerate(reported.values) if place and place.mpi]
    places = np.zeros(len(numbers), np.int64) if reported.of is None else reported.of
    ranks = np.flatnonzero(np.isin(places, of_mpi) & (numbers >= 0))
    _, first = np.unique(numbers[ranks], return_index=True)
    again = np.setdiff1d(np.arange(len(ranks)), first)
    if not len(again):
        return
    rank = int(ranks[again[0]])
    number, place = int(numbers[rank]), reported[rank]
    other = int(ranks[np.argmax(numbers[ranks] == number)])
    assert place is not None
    yield (
        rank,
        LaunchProblem(
            f"ranks {other} and {rank} of MPI are both number {number} for {place.launcher} ({place.variable}): the "
            "variables are another launcher's, or were handed on",
            f"Start the job with one launcher, and do not export {place.variable}. {_TRUST}",
        ),
    )


def slurm_pmix_risk(env: Mapping[str, str], library: str) -> LaunchProblem | None:
    """Recognise a step of Slurm in which MPI_Init may fail (see detect.pmix).

    :param library: the text of MPI_Get_library_version
    :returns: None if the step has no such risk
    """
    server = re.match(r"[34]\.[\d.]+", env.get("PMIX_VERSION", ""))
    per_node = [int(n) for n in re.findall(r"(?:^|,)(\d+)", env.get("SLURM_STEP_TASKS_PER_NODE", ""))]
    under_pmix = env.get("SLURM_MPI_TYPE", "").startswith("pmix")
    if not (under_pmix and server and max(per_node, default=0) >= 3 and library.startswith("Open MPI v5")):
        return None
    return LaunchProblem(
        f"Open MPI 5 under srun with Slurm's PMIx {server[0]} and {max(per_node)} ranks per node: MPI_Init fails where "
        "Open MPI does not learn from that PMIx how many ranks its node has",
        "Start the job with mpirun inside the allocation (`hpccoll run` does), use Open MPI 4.1, or at most 2 ranks "
        "per node.",
    )

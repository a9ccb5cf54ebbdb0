# SPDX-License-Identifier: Apache-2.0
"""The default rendezvous: an elastic job's coordinator, a launcher's store, MPI or PMIx."""

import contextlib
import dataclasses
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hpccoll import _core, config, detect, errors, inherited, net, taken_place
from hpccoll.detect import contradictions, pmix
from hpccoll.launch_protocol import STORE
from hpccoll.rendezvous import (
    CoordinatedRendezvous,
    MpiRendezvous,
    PmixRendezvous,
    Rendezvous,
    SingleProcess,
    StoreRendezvous,
    coordinator,
    launcher_store,
)
from hpccoll.rendezvous.newcomer import Apart
from hpccoll.rendezvous.pmix import serves
from hpccoll.text import say

__all__ = ["apart", "choose", "through_launcher"]


def choose(comm: Any, settings: config.Config) -> Rendezvous:
    """Make the rendezvous of the ranks of a communicator.

    Without one: the ranks of an elastic job's next generation, those that `hpccoll run` started without MPI, those of
    MPI_COMM_WORLD; without MPI those that a launcher with PMIx has started, or this process alone.

    :raises StartError: ranks are missing, launcher and MPI contradict each other, or a rank has started this process
    """
    if comm is not None:
        return MpiRendezvous(comm, settings.start_timeout)
    taken_place.check()
    if elastic := coordinator.of_process(inherited.environment()):
        return CoordinatedRendezvous(elastic, settings.start_timeout)
    if store := launcher_store.of_process(inherited.environment()):
        return through_launcher(store, settings)
    _check_slurm_pmix(settings)
    try:
        started = "mpi4py.MPI" in sys.modules
        with contextlib.nullcontext() if started else _notice_of_a_hang(settings, "MPI_Init"):
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        rendezvous: Rendezvous = _without_mpi(settings, str(error))
        reason = f" (mpi4py could not be loaded: {error})"
    else:
        rendezvous = MpiRendezvous(MPI.COMM_WORLD, settings.start_timeout)
        reason = ""
    problem = contradictions.singleton_problem(inherited.environment(), rendezvous.size)
    if problem and not settings.allow_singleton:
        raise errors.StartError(f"{problem}{reason}")
    if rendezvous.size > 1 and isinstance(rendezvous, MpiRendezvous):
        _compare_launch(rendezvous, settings)
    return rendezvous


def apart() -> Apart | None:
    """Make the rendezvous of a new rank of an elastic job, if its program calls init() before run().

    :returns: None: the ranks of the World are those that choose() finds
    :raises StartError: the launcher of the job is gone
    """
    taken_place.check()
    job = coordinator.of_process(inherited.environment())
    place = job and job.ask()
    if not job or not place:
        return None
    job.tell(
        "the job runs already, and does not wait for this new rank. It comes in when it calls elastic.run(); until "
        "then operations have this rank alone"
    )
    return Apart(place)


def _without_mpi(settings: config.Config, why: str) -> Rendezvous:
    """Use the PMIx server of the launcher, or a rendezvous of this process alone."""
    environment = inherited.environment()
    place = detect.place(environment)
    if place and place.size != 1 and serves(environment):
        return PmixRendezvous(partial(_notice_of_a_hang, settings, "an exchange through PMIx"), why, environment)
    return SingleProcess()


def through_launcher(
    store: launcher_store.LauncherStore, settings: config.Config, prefix: str = "hpccoll"
) -> StoreRendezvous:
    """Use the store of the launcher, which has set the rank of each process.

    :param prefix: see StoreRendezvous
    """
    place = detect.place(inherited.environment())
    if place is None or place.rank is None or place.size is None:
        raise errors.StartError(
            f"{STORE} is set, and no variable says which rank this is: start the job by `hpccoll run`, or unset it"
        )
    return StoreRendezvous(place.rank, place.size, store, prefix=prefix, timeout=settings.start_timeout)


def _notice_of_a_hang(settings: config.Config, what: str) -> contextlib.AbstractContextManager[object]:
    """Report on rank 0 (of the launcher, or a process without one) that a call does not return.

    On all ranks the process ends at the limit of the start: a call that waits for all ranks has no other limit.

    :param what: the call, such as MPI_Init
    """
    place = detect.place(inherited.environment())
    rank = place.rank if place else 0
    who = f"hpccoll: rank {rank} on {platform.node()}: {what} has not returned after"
    doctor = "`hpccoll doctor`, started like this job, says where it hangs (docs: When it hangs or is slow)"
    speaks = settings.stall_warning and rank == 0
    return _core.Notice(
        settings.stall_warning,
        f"{who} {settings.stall_warning:g} s. {doctor}" if speaks else "",
        settings.start_timeout,
        f"{who} {settings.start_timeout:g} s (HPCCOLL_START_TIMEOUT): this process ends. {doctor}",
    )


def _compare_launch(rendezvous: Rendezvous, settings: config.Config) -> None:
    """All ranks of MPI_COMM_WORLD learn together whether the launcher tells of the same ranks."""
    from hpccoll import _mpi

    place = detect.place(inherited.environment())
    about = place and dataclasses.asdict(place.without_numbers())
    mine: list[Any] = [about, _mpi.library_version(), settings.trust_mpi]
    said = rendezvous.compare(mine)
    numbers = rendezvous.numbers([-1 if place is None or place.rank is None else place.rank])[:, 0]
    if any(trusting for *_, trusting in said.values):
        return
    places = said.map(lambda one: detect.Place(**one[0]) if one[0] else None)
    if problem := contradictions.contradiction(places, said.map(lambda one: one[1]), numbers):
        raise errors.StartError(f"the World was not made: {problem}")


def _check_slurm_pmix(settings: config.Config) -> None:
    """Find known problems before mpi4py starts MPI, because MPI_Init may end the process."""
    environment = inherited.environment()
    if "SLURM_MPI_TYPE" not in environment or "mpi4py.MPI" in sys.modules or settings.trust_mpi:
        return
    try:
        risk = contradictions.slurm_pmix_risk(environment, net.MpiNet().library())
    except (ImportError, RuntimeError):
        return
    client = pmix.library_in(Path("/proc/self/maps").read_text()) if risk else ""
    knows = pmix.knows_local_size(client) if client else None
    if risk and knows is None and environment.get("SLURM_PROCID") == "0":
        say(f"hpccoll: {risk}")
    if risk and knows is False:
        raise errors.StartError(f"MPI was not started. {risk} If this is meant, set HPCCOLL_TRUST_MPI=1.")

# SPDX-License-Identifier: Apache-2.0
"""The MPI libraries of mpi4py and hpccoll, the thread level, and whether MPI_Init returns."""

import signal
from dataclasses import asdict

from hpccoll.checks.finding import ERROR, NOTE, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.detect import contradictions
from hpccoll.net import Drivers
from hpccoll.net.mpi import LEVELS
from hpccoll.text import capitalized, listed, some_ranks
from hpccoll.tools import info
from hpccoll.tools.doctor import addresses
from hpccoll.tools.doctor.child_monitor import Outcome

NAME = "mpi"
ABSENT = "no MPI"
"""The fact of a rank whose Python has no MPI: the reason."""
UNUSED = "not used"
"""The fact of a rank whose job was started without MPI."""
BEGINNING = ("loading", "MPI_Init", "the first")


def _matters(stage: str) -> str:
    if stage.startswith(BEGINNING):
        return "nothing of the job can begin"
    return "MPI came up, and then an exchange stopped in the middle"


def collect(env: dict[str, str]) -> Facts:
    """Collect both libraries and the thread level, in a process where MPI is initialised."""
    from mpi4py import MPI

    library = " ".join(MPI.Get_library_version().strip("\0\n ").splitlines()[0].split())
    risk = contradictions.slurm_pmix_risk(env, library)
    levels = {getattr(MPI, "THREAD_" + n): n for n in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")}
    return {
        "library": library,
        "standard": ".".join(map(str, MPI.Get_version())),
        "thread level": levels[MPI.Query_thread()],
        "ours": info.mpi_extension(),
        "risk": asdict(risk) if risk else None,
    }


def failed(outcome: Outcome, asked_to_end: bool = False) -> Facts:
    """Make the facts of a rank whose child did not report.

    :param asked_to_end: whether the launcher ended the job
    """
    return {
        "stage": outcome.stage,
        "seconds": round(outcome.seconds, 1),
        "error": outcome.error,
        "status": -signal.SIGTERM if asked_to_end and not outcome.status else outcome.status,
        "stack": outcome.stack,
        "waits for": outcome.waits_for,
    }


def judge(survey: Survey) -> list[Finding]:
    """Find hangs and failures by stage, different libraries, and a thread level that rules out a background thread."""
    found = _absent(survey.reports)
    stages: dict[tuple[str, bool], list[RankReport]] = {}
    for report in survey.reports:
        facts = report.facts.get(NAME, {})
        if "stage" in facts:
            hung = facts["status"] is None and not facts.get("error")
            stages.setdefault((facts["stage"], hung), []).append(report)
    for (stage, hung), reports in stages.items():
        found.append(_hung(survey, stage, reports) if hung else _died(stage, reports))
    up = [report for report in survey.reports if "library" in report.facts.get(NAME, {})]
    return found + (_libraries(up) if up else [])


def _absent(reports: list[RankReport]) -> list[Finding]:
    without = [report for report in reports if ABSENT in report.facts.get(NAME, {})]
    if not without:
        return []
    some = len(without) < len(reports)
    where = f"{some_ranks(r.rank for r in without)} ({listed(r.host for r in without)})"
    return [
        Finding(
            NAME,
            ERROR if some else WARNING,
            f"no MPI on {where}: {without[0].facts[NAME][ABSENT]}",
            "ranks with and without an MPI cannot start together"
            if some
            else "a job of mpirun or `srun --mpi` cannot start; ranks of `hpccoll run --launcher ssh`, torchrun or a "
            "store do, and between nodes UCX carries their data",
            f"{capitalized(info.AN_MPI)}{'' if some else '. Nothing, if the job is to run without one'}",
        )
    ]


def _hung(survey: Survey, stage: str, reports: list[RankReport]) -> Finding:
    facts = reports[0].facts[NAME]
    where = f"; {some_ranks([reports[0].rank])} is in {' < '.join(facts['stack'][:8])}" if facts["stack"] else ""
    waits = sorted({a for report in reports for a in report.facts[NAME]["waits for"]})
    waiting = f"; connecting without an answer to {listed(waits)}" if waits else ""
    return Finding(
        NAME,
        ERROR,
        f"{stage} has not returned after {facts['seconds']:g} s on {some_ranks(c.rank for c in reports)} "
        f"({listed(c.host for c in reports)}){where}{waiting}",
        _matters(stage),
        _suspicion(survey, stage, waits),
    )


def _suspicion(survey: Survey, stage: str, waits: list[str]) -> str:
    """Suggest a remedy for a hang, from the other facts of the survey."""
    decoys = addresses.shared_addresses(survey)
    awaited = [wait.partition(":")[0] for wait in waits if wait.partition(":")[0] in decoys]
    for address in awaited or decoys:
        name = decoys[address][0][1]
        return (
            f"{address} is {name} on several hosts, and each reaches only itself through it: "
            f"OMPI_MCA_btl_tcp_if_exclude=lo,{name} (others take the right one's name: UCX_NET_DEVICES, HYDRA_IFACE, "
            f"FI_TCP_IFACE with FI_PROVIDER=tcp), or `ip link set {name} down`"
        )
    if stage.startswith("loading"):
        return "A file system that does not answer holds up `import`: `strace -f -e openat`, `df` on that host"
    return (
        "First mend the errors among the addresses below. Without any: does the launcher support this library's "
        "protocol (`srun --mpi=list`, `hpccoll run` uses the library's own mpirun)? Name the network "
        "(OMPI_MCA_btl_tcp_if_include=10.0.0.0/8, FI_PROVIDER=tcp with FI_TCP_IFACE=eth0); "
        "OMPI_MCA_btl_base_verbose=30 or FI_LOG_LEVEL=info show what MPI tries"
    )


def _died(stage: str, reports: list[RankReport]) -> Finding:
    facts = reports[0].facts[NAME]
    if error := facts.get("error"):
        how = f"failed ({error})"
    elif facts["status"] == -signal.SIGTERM:
        how = "ended the process (the launcher ended the job)"
    elif facts["status"] < 0:
        how = f"ended the process (signal {-facts['status']})"
    else:
        how = f"ended the process (status {facts['status']})"
    return Finding(
        NAME,
        ERROR,
        f"{stage} {how} on {some_ranks(r.rank for r in reports)} ({listed(r.host for r in reports)})",
        _matters(stage),
        "Its own message is above. On login nodes MPI often starts only inside a job; under srun the step needs the "
        "protocol of the library (`srun --mpi=pmix` or pmi2); two MPIs mixed on PATH and LD_LIBRARY_PATH do this too",
    )


def _libraries(reports: list[RankReport]) -> list[Finding]:
    facts, found = reports[0].facts[NAME], []
    libraries: dict[str, list[int]] = {}
    for report in reports:
        libraries.setdefault(report.facts[NAME]["library"], []).append(report.rank)
    if len(libraries) > 1:
        seen = "; ".join(f"{some_ranks(ranks)}: {library}" for library, ranks in libraries.items())
        found.append(Finding(NAME, ERROR, seen, "ranks on different MPI libraries", "Load one MPI module on all nodes"))
    ours = facts["ours"]
    if misfit := ours.get("mpi4py was built for"):
        seen = f"the process has {ours['library']}, but mpi4py was built for {misfit}"
        remedy = capitalized(ours["to do"])
        found.append(Finding(NAME, ERROR, seen, "MPI's sizes and constants do not fit", remedy))
    if LEVELS[facts["thread level"]] is not Drivers.ANY:
        found.append(
            Finding(
                NAME,
                WARNING,
                f"MPI grants the thread level {facts['thread level']}",
                "no background thread may call MPI: progress is made only while the program waits",
                "MPI4PY_RC_THREAD_LEVEL=multiple, or an MPI built with thread support; else call World.progress()",
            )
        )
    if facts["risk"]:
        remedy = f"Nothing, as long as it does. {facts['risk']['remedy']}"
        found.append(Finding(NAME, NOTE, facts["risk"]["seen"], "it started this time", remedy))
    return found

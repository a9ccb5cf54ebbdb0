# SPDX-License-Identifier: Apache-2.0
"""Variables that leave Open MPI without a way between ranks."""

from collections.abc import Mapping

from hpccoll import detect
from hpccoll.checks.finding import ERROR, Facts, Finding
from hpccoll.checks.survey import Survey

NAME = "transports"
VARIABLE = "OMPI_MCA_btl"
NEAR, FAR = {"sm", "vader"}, {"tcp", "ofi", "uct", "openib", "ugni", "portals4", "usnic"}
"""The components that connect ranks of a host, and those that connect any."""


def collect(env: Mapping[str, str]) -> Facts:
    """Read the components that the environment names, and how many ranks the launcher started, here and in all."""
    place = detect.place(env)
    return {
        "btl": env.get(VARIABLE, ""),
        "pml": env.get("OMPI_MCA_pml", ""),
        "ranks": (place and place.size) or 1,
        "local": (place and place.local_size) or 1,
    }


def judge(survey: Survey) -> list[Finding]:
    """Find a choice of components with which ranks cannot reach each other."""
    for report in survey.leaders:
        facts = report.facts[NAME]
        if "Open MPI" not in report.facts.get("mpi", {}).get("library", "Open MPI"):
            continue
        chosen = {word.strip() for word in facts["btl"].split(",") if word.strip()}
        if not chosen or facts["btl"].startswith("^") or facts["pml"] not in ("", "ob1"):
            continue
        several_here = facts["local"] > 1 and not chosen & (NEAR | FAR)
        several_hosts = max(facts["ranks"], survey.size) > facts["local"] and not chosen & FAR
        if several_here or several_hosts:
            where = "ranks of one host" if several_here else "ranks on several hosts"
            return [
                Finding(
                    NAME,
                    ERROR,
                    f"{VARIABLE}={facts['btl']} is set: MPI may connect a rank with itself"
                    f"{' and with those of its host' if chosen & NEAR else ''} only, and the job has {where}",
                    'MPI_Init or the first message ends with "Unreachable", or the job is killed there',
                    f"`unset {VARIABLE}`, or {VARIABLE}=self,sm,tcp; a line `btl = ...` in "
                    "~/.openmpi/mca-params.conf does the same",
                )
            ]
    return []

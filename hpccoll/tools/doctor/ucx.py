# SPDX-License-Identifier: Apache-2.0
"""UCX, the network of a job without MPI: the library that a World would use, and whether all ranks have it."""

from hpccoll import config, errors
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.net import ucx_libraries
from hpccoll.net.ucx import UcxNet
from hpccoll.text import some_ranks

NAME = "ucx"


def collect() -> Facts:
    """Open the library that a World would use. In a job with MPI, MPI is up, and may have loaded its own UCX."""
    try:
        settings = config.read()
    except errors.InvalidArgumentError as error:  # build.py reports it
        return {"library": "", "lacks": str(error)}
    lacks = ucx_libraries.open_one(settings.ucx_library)
    return {"library": "" if lacks else UcxNet(settings).library(), "lacks": lacks}


def describe(facts: Facts) -> str:
    """Describe the library in a line, or why there is none."""
    return str(facts.get("library", "").removeprefix("UCX ") or facts.get("lacks") or "not looked for")


def judge(survey: Survey) -> list[Finding]:
    """Find ranks without the library that others have, and ranks with another version."""
    seen: dict[str, list[int]] = {}
    for report in survey.reports:
        library = report.facts.get(NAME, {}).get("library", "")
        seen.setdefault(library.partition(" (")[0], []).append(report.rank)
    if len(seen) < 2:
        return []
    where = "; ".join(f"{some_ranks(ranks)}: {version or 'none'}" for version, ranks in seen.items())
    return [
        Finding(
            NAME,
            WARNING,
            f"UCX differs between ranks ({where})",
            "a job without MPI needs UCX on all ranks to span hosts, and one version does best",
            f"Start all ranks with one environment; {ucx_libraries.REMEDY}",
        )
    ]

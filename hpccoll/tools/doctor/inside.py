# SPDX-License-Identifier: Apache-2.0
"""The measured allreduce inside a node, against what the machine should reach."""

from collections.abc import Iterator

from hpccoll.checks import placement
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import byte_size
from hpccoll.tools.doctor.network import duration

NAME = "inside"
BASE, PER_RANK = 20e-6, 2e-6
"""Seconds that 8 bytes should take at most: 2 to 16 ranks with a core each take 3 to 20 us."""
LATE = 5.0
"""A measured time of this many times the expected time is a finding."""
COPIES = 12.0
"""The number of copies of a large array, made by all ranks at once, that its allreduce may take."""
REMEDY = "See the findings about load, binding and limits; `top` on that host while the job runs. Is it throttled?"


def judge(survey: Survey) -> list[Finding]:
    """Find nodes whose allreduce takes longer than it should, always or sometimes."""
    found: list[Finding] = []
    cpus = {
        reports[0].host: len(frozenset().union(*map(placement.cpus_of, reports))) for reports in survey.nodes.values()
    }
    for facts in survey.inside:
        if "mean" in facts and facts["ranks"] <= cpus.get(facts["node"], 0):
            found += [*_small(facts), *_large(facts)]
    return found


def _small(facts: Facts) -> Iterator[Finding]:
    should = BASE + PER_RANK * facts["ranks"]
    usual, mean, worst = facts["small"], facts["mean"], facts["worst"]
    if max(usual, mean) <= LATE * should:
        return
    yield Finding(
        NAME,
        WARNING,
        f"{facts['node']}: an allreduce of 8 B between {facts['ranks']} ranks takes {duration(usual)} as a rule, "
        f"{duration(mean)} on average and {duration(worst)} at worst; {duration(should)} is enough for ranks with a "
        "core each",
        "something keeps a rank from its core, and all ranks wait for it in every operation",
        REMEDY,
    )


def _large(facts: Facts) -> Iterator[Finding]:
    if facts["large"] > COPIES * facts["copy"]:
        yield Finding(
            NAME,
            WARNING,
            f"{facts['node']}: an allreduce of {byte_size(facts['bytes'])} takes {duration(facts['large'])}, and a "
            f"copy of it, made by all ranks at once, {duration(facts['copy'])}",
            f"it should take fewer than {COPIES:.0f} copies",
            REMEDY,
        )

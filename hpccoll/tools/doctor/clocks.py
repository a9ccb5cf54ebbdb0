# SPDX-License-Identifier: Apache-2.0
"""The clocks of the nodes, which are compared when the network is measured."""

from hpccoll.checks.finding import ERROR, WARNING, Finding
from hpccoll.checks.survey import Survey

NAME = "clocks"
OFF, REFUSED = 1.0, 300.0
"""Seconds from which logs of two nodes mislead, and from which munge refuses credentials (its default time to live)."""


def judge(survey: Survey) -> list[Finding]:
    """Find pairs of nodes whose clocks differ by a second or more."""
    found = []
    for link in survey.links:
        skew = link.get("skew", 0.0)
        if abs(skew) >= OFF:
            first, second = link["hosts"]
            found.append(
                Finding(
                    NAME,
                    ERROR if abs(skew) >= REFUSED else WARNING,
                    f"the clock of {second} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} that of "
                    f"{first}",
                    "time stamps of logs and files cannot be compared"
                    + ("; Slurm's munge and Kerberos refuse such hosts" if abs(skew) >= REFUSED else ""),
                    "Let chrony or ntpd run on all nodes: `chronyc tracking`, `timedatectl`",
                )
            )
    return found

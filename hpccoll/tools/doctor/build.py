# SPDX-License-Identifier: Apache-2.0
"""The installation: its compiled parts, Python, and equal versions on all ranks."""

import platform
import sys

from hpccoll import _core, config, errors
from hpccoll.checks.finding import ERROR, NOTE, WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import some_ranks
from hpccoll.tools import info

NAME = "build"


def collect() -> Facts:
    """Collect versions, and the paths of this Python and of the extensions."""
    return {
        "versions": {n: v for n in ("hpccoll", "numpy", "mpi4py") if (v := info.version_of(n))},
        "Python": platform.python_version(),
        "executable": sys.executable,
        "engine": _core.__file__,
        "kernels": _core.kernels(),
        "knobs": knobs(),
    }


def knobs() -> str:
    """Explain why `hpccoll.init()` would refuse the environment; "" if it would not."""
    try:
        config.read()
    except errors.InvalidArgumentError as error:
        return str(error)
    return ""


def judge(survey: Survey) -> list[Finding]:
    """Find missing parts, ranks with another installation, and unknown or wrong knobs."""
    found = []
    for text in dict.fromkeys(report.facts[NAME]["knobs"] for report in survey.reports if report.facts[NAME]["knobs"]):
        where = some_ranks(report.rank for report in survey.reports if report.facts[NAME]["knobs"] == text)
        remedy = "Correct or unset the variable (docs/knobs.md)"
        found.append(Finding(NAME, ERROR, f"{where}: {text}", "hpccoll.init() refuses it", remedy))
    for what, severity in (("versions", ERROR), ("Python", WARNING), ("kernels", NOTE)):
        values: dict[str, list[int]] = {}
        for report in survey.reports:
            values.setdefault(str(report.facts[NAME][what]), []).append(report.rank)
        if len(values) > 1:
            seen = "; ".join(f"{some_ranks(ranks)}: {value}" for value, ranks in values.items())
            found.append(
                Finding(
                    NAME,
                    severity,
                    f"{what} differ between ranks ({seen})",
                    "ranks of one job must run one installation"
                    if severity != NOTE
                    else "some nodes have older processors",
                    "Start all ranks with one environment; with ssh check PATH on the other hosts"
                    if severity != NOTE
                    else "Nothing, unless bits must be equal: HPCCOLL_SIMD=portable on all ranks",
                )
            )
    return found

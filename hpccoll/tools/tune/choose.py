# SPDX-License-Identifier: Apache-2.0
"""Chooses the settings that are better than the defaults, from samples that were taken in turn."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpccoll.tools.bench import statistics
from hpccoll.tools.bench.results import Case, Results

DEFAULTS = ""
"""The name of the arm with the defaults."""
WORTH = 0.98
"""A choice is written if the upper end of its interval is below this share of the defaults' time in some case."""


@dataclass(frozen=True)
class Judged:
    """The comparison of an arm with the defaults."""

    arm: str
    ratios: Mapping[str, statistics.Median]
    """Per case: the arm's time divided by that of the defaults, with its 95 % interval."""

    @property
    def mean(self) -> float:
        """The geometric mean over the cases."""
        return math.exp(sum(math.log(ratio.middle) for ratio in self.ratios.values()) / len(self.ratios))

    @property
    def worse(self) -> list[str]:
        """The cases in which it is slower than the defaults, by its whole interval."""
        return [case for case, ratio in self.ratios.items() if ratio.low > 1]

    @property
    def gains(self) -> bool:
        """Whether it is faster in some case by its whole interval, slower in none, and faster on average."""
        return not self.worse and self.mean < 1 and any(ratio.high < WORTH for ratio in self.ratios.values())

    def text(self) -> str:
        """Describe its gains, case by case."""
        cases = (f"{case} {r.middle:.3f} ({r.low:.3f} to {r.high:.3f})" for case, r in self.ratios.items())
        return "; ".join(cases)


def judge(results: Results) -> list[Judged]:
    """Compare each arm with the defaults of the same results.

    :raises ValueError: there are no samples of the defaults for a case, or too few
    """
    cases: dict[str, dict[str, Case]] = {}
    for key, case in results.cases.items():
        if key.library == "hpccoll":
            cases.setdefault(f"{key.what} {key.bytes}", {})[key.arm] = case
    arms = dict.fromkeys(arm for those in cases.values() for arm in those if arm != DEFAULTS)
    return [Judged(arm, {name: _ratio(name, those, arm) for name, those in cases.items()}) for arm in arms]


def _ratio(name: str, those: Mapping[str, Case], arm: str) -> statistics.Median:
    if DEFAULTS not in those or arm not in those:
        raise ValueError(f"{name}: {arm or 'the defaults'} were not measured beside the others")
    defaults, found = (statistics.resampled(those[name].by_launch(), i) for i, name in enumerate((DEFAULTS, arm)))
    return statistics.estimate(found, defaults)


def best(judged: Iterable[Judged]) -> Judged | None:
    """Return the arm that gains most; None if none gains."""
    return min((arm for arm in judged if arm.gains), key=lambda arm: arm.mean, default=None)


def site_file(chosen: Mapping[str, tuple[Any, Judged]], together: Judged, heading: str) -> str:
    """Write the choices as a site file (HPCCOLL_SITE_FILE).

    :param chosen: the value of each knob, and what it gained alone
    :param together: what all of them gained
    :param heading: where and how it was measured
    """
    lines = [f"# {line}" for line in heading.splitlines()]
    lines += [
        "# Times divided by those of the defaults, with 95 % intervals.",
        f"# all: {together.text()}",
        "",
        "[knobs]",
    ]
    for knob, (value, judged) in chosen.items():
        written = f'"{value}"' if isinstance(value, str) else str(value)
        lines += [f"# {judged.text()}", f"{knob} = {written}"]
    return "\n".join(lines) + "\n"

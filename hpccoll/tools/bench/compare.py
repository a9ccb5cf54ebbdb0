# SPDX-License-Identifier: Apache-2.0
"""Whether two files of results differ: the ratio of the medians with its interval, and the Mann-Whitney test.

Both are over launches: two launches of one program differ by more than the samples of a launch do, and a test over
samples calls that a difference.
"""

import dataclasses
import json
import math
from dataclasses import dataclass

from hpccoll.tools.bench import sizes, statistics
from hpccoll.tools.bench.results import Key, Results, ResultsError

NO_VERDICT = "no verdict"
SLOWER, UNKNOWN = 3, 4
"""Exit status of a comparison: a case is slower; none is, but some have no verdict."""


@dataclass(frozen=True)
class Compared:
    """One case that both files have."""

    key: Key
    difference: statistics.Difference
    p: float
    """Corrected for the number of cases (Holm 1979); nan without a verdict."""
    missing: tuple[int, int]
    """The launches of each file that a verdict lacks."""

    @property
    def verdict(self) -> str:
        """`slower`, `faster`, or `no difference seen`: test and interval must agree; `no verdict` with few launches."""
        ratio = self.difference.ratio
        if any(self.missing):
            return NO_VERDICT
        if self.p >= statistics.SIGNIFICANT or ratio.low <= 1 <= ratio.high:
            return "no difference seen"
        return "slower" if ratio.middle > 1 else "faster"


def compare(first: Results, second: Results) -> list[Compared]:
    """Compare all cases that both have.

    :raises ResultsError: there is none
    """
    keys = [key for key in first.cases if key in second.cases]
    if not keys:
        raise ResultsError(
            "the files have no case in common: the same collective, size, dtype, library, ranks and nodes"
        )
    needed = statistics.needed(len(keys))
    found = [statistics.difference(first.cases[key].by_launch(), second.cases[key].by_launch(), needed) for key in keys]
    tested = [i for i, one in enumerate(found) if not math.isnan(one.p)]
    corrected = dict(zip(tested, statistics.holm([found[i].p for i in tested]), strict=True))
    return [
        Compared(key, one, corrected.get(i, math.nan), _missing(one, needed))
        for i, (key, one) in enumerate(zip(keys, found, strict=True))
    ]


def _missing(one: statistics.Difference, needed: int) -> tuple[int, int]:
    first, second = (max(0, needed - count) for count in one.launches)
    return first, second


def status(compared: list[Compared]) -> int:
    """Return the exit status of a comparison."""
    verdicts = {one.verdict for one in compared}
    return SLOWER if "slower" in verdicts else UNKNOWN if NO_VERDICT in verdicts else 0


def text(compared: list[Compared]) -> str:
    """Return a line per case, and a legend."""
    lines = [
        f"{'case':<26} {'size':>8} {'contestant':<18} {'launches':>8} {'ratio':>7} {'95% interval':>18} {'p':>9}  "
        "the second file is"
    ]
    lines += map(_line, compared)
    count = sum(not any(one.missing) for one in compared)
    lines.append("# ratio: the launches' median of the second file, divided by that of the first")
    if count:
        lines.append(
            f"# p: Mann-Whitney over the medians of launches, corrected for {count} case{'s' * (count > 1)} (Holm)"
        )
    if any(one.difference.ratio.ranged for one in compared):
        lines.append(f"# r: no interval but the range, for there are fewer than {statistics.ENOUGH} launches")
    if count < len(compared):
        lines.append(
            f"# warning: a verdict on {len(compared)} case{'s' * (len(compared) > 1)} needs "
            f"{statistics.needed(len(compared))} launches in each file, as two launches of one program differ by more "
            "than the samples of a launch: measure with --launches, or merge files"
        )
    return "\n".join(lines)


def as_json(compared: list[Compared], first: Results, second: Results) -> str:
    """Return the cases, and how many only the first file and only the second have, as one JSON document."""
    cases = [
        dataclasses.asdict(one.key)
        | {"ratio": one.difference.ratio.middle, "low": one.difference.ratio.low, "high": one.difference.ratio.high}
        | {"interval": "range of launches" if one.difference.ratio.ranged else "launches"}
        | {"launches": one.difference.launches, "p": None if math.isnan(one.p) else one.p, "verdict": one.verdict}
        for one in compared
    ]
    alone = [len(one.cases) - len(compared) for one in (first, second)]
    return json.dumps({"cases": cases, "only_in_first": alone[0], "only_in_second": alone[1]}, indent=1)


def left_out(first: Results, second: Results) -> str:
    """Return a warning for each file that has cases which the other one has not, and which are not compared."""
    lines = []
    for place, one, other in (("first", first, second), ("second", second, first)):
        if alone := [key for key in one.cases if key not in other.cases]:
            lines.append(
                f"# warning: {len(alone)} of {len(one.cases)} cases of the {place} file are not in the other one, and "
                f"not compared, as {_name(alone[0])}, {sizes.short(alone[0].bytes)} bytes, {alone[0].contestant}"
            )
    return "\n".join(lines)


def _name(key: Key) -> str:
    return f"{key.what} {key.dtype} {key.ranks}x{key.nodes}"


def _line(one: Compared) -> str:
    key, ratio = one.key, one.difference.ratio
    launches = "+".join(map(str, one.difference.launches))
    bounds = f"{ratio.low:.3f} .. {ratio.high:.3f}{'r' if ratio.ranged else ' '}" if ratio.low < ratio.high else ""
    verdict, p = one.verdict, "" if math.isnan(one.p) else f"{one.p:.2g}"
    if any(one.missing):
        verdict += f": {one.missing[0]} and {one.missing[1]} launches are missing"
    return (
        f"{_name(key):<26} {sizes.short(key.bytes):>8} {key.contestant:<18} "
        f"{launches:>8} {ratio.middle:>7.3f} {bounds:>18} {p:>9}  {verdict}"
    )

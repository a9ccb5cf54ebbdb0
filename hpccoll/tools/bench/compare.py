# SPDX-License-Identifier: Apache-2.0
"""Whether two files of results differ: the ratio of the medians with its interval, and the Mann-Whitney test."""

from __future__ import annotations

from dataclasses import dataclass

from hpccoll.tools.bench import sizes, statistics
from hpccoll.tools.bench.results import Key, Results, ResultsError

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Compared:
    """One case that both files have."""

    key: Key
    difference: statistics.Difference
    p: float
    """Corrected for the number of cases (Holm 1979)."""

    @property
    def verdict(self) -> str:
        """`slower`, `faster`, or `no difference seen`: test and interval must agree."""
        ratio = self.difference.ratio
        if self.p >= SIGNIFICANT or ratio.low <= 1 <= ratio.high:
            return "no difference seen"
        return "slower" if ratio.middle > 1 else "faster"


def compare(first: Results, second: Results) -> list[Compared]:
    """Compare all cases that both have.

    :raises ResultsError: there is none, or a case has too few samples
    """
    keys = [key for key in first.cases if key in second.cases]
    if not keys:
        raise ResultsError(
            "the files have no case in common: the same collective, size, dtype, library, ranks and nodes"
        )
    found = []
    for key in keys:
        try:
            found.append(statistics.difference(first.cases[key].by_launch(), second.cases[key].by_launch()))
        except ValueError as error:
            raise ResultsError(f"{key.what}, {key.bytes} bytes, {key.contestant}: {error}") from None
    corrected = statistics.holm([difference.p for difference in found])
    return [Compared(*values) for values in zip(keys, found, corrected, strict=True)]


def text(compared: list[Compared]) -> str:
    """Return a line per case, and a legend."""
    lines = [
        f"{'case':<26} {'size':>8} {'contestant':<18} {'ratio':>7} {'95% interval':>18} {'p':>9}  the second file is"
    ]
    for one in compared:
        key, ratio = one.key, one.difference.ratio
        case = f"{key.what} {key.dtype} {key.ranks}x{key.nodes}"
        lines.append(
            f"{case:<26} {sizes.short(key.bytes):>8} {key.contestant:<18} {ratio.middle:>7.3f} "
            f"{f'{ratio.low:.3f} .. {ratio.high:.3f}':>18} {one.p:>9.2g}  {one.verdict}"
        )
    by = "medians of launches" if all(one.difference.by_launches for one in compared) else "all samples"
    lines.append(
        f"# ratio: median of the second file divided by that of the first; p: Mann-Whitney over {by}, corrected for "
        f"{len(compared)} case{'s' * (len(compared) > 1)} (Holm)"
    )
    if by == "all samples":
        lines.append(
            f"# warning: fewer than {statistics.LAUNCHES} launches on a side; samples of one launch are alike, "
            f"so that small differences may be the launch's: measure with --launches {statistics.LAUNCHES}"
        )
    return "\n".join(lines)

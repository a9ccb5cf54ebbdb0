# SPDX-License-Identifier: Apache-2.0
"""Results: cases with all their samples, and launches with their conditions.

docs/measure.md describes the file that holds them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.errors import HpccollError

Facts = dict[str, Any]


class ResultsError(HpccollError):
    """Results cannot be trusted, merged or read; the text has the reason and the remedy."""


@dataclass(frozen=True, order=True)
class Key:
    """The key of a case: samples with the same key belong together."""

    kind: str
    """`collective`; `step` of a program; `control`: agreement of real ranks; `engine`: of virtual ones; `start`."""
    what: str
    """The collective, the name of the program, or which step of agreement or of the start."""
    library: str
    arm: str
    """The name of the knobs or of the variant; "" for the defaults."""
    dtype: str
    memory: str
    net: str
    ranks: int
    nodes: int
    bytes: int

    @property
    def contestant(self) -> str:
        """The library and its arm, as tables and figures name them."""
        return f"{self.library} {self.arm}".strip()


KEY_FIELDS = tuple(f.name for f in dataclasses.fields(Key))


@dataclass
class Case:
    """All samples of one key."""

    key: Key
    samples: NDArray[np.float64]
    """Seconds of one call, or of one step: the slowest rank's. One per repetition."""
    launch: NDArray[np.int32]
    """The launch of each sample: its place in Results.launches."""
    calls: NDArray[np.int32]
    """The calls over which each sample is a mean."""
    parts: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Seconds of each part of a step, as long as `samples`: compute, input, communication; the mean of the ranks; the
    latencies of a cache line between their cores."""
    facts: Facts = field(default_factory=dict)
    """`version` of the library, `verified`, `ended` (why the repetition ended), `items` (in a step of all ranks)."""

    def by_launch(self) -> list[NDArray[np.float64]]:
        """Return the samples of each launch."""
        return [self.samples[self.launch == number] for number in np.unique(self.launch)]


@dataclass
class Results:
    """Cases, and the launches that gave them."""

    launches: list[Facts] = field(default_factory=list)
    cases: dict[Key, Case] = field(default_factory=dict)

    def add(self, other: Results) -> None:
        """Add launches and cases; samples with a known key are appended."""
        first = len(self.launches)
        self.launches += other.launches
        for key, case in other.cases.items():
            moved = dataclasses.replace(case, launch=(case.launch + first).astype(np.int32))
            self.cases[key] = _joined(self.cases[key], moved) if key in self.cases else moved


def _joined(first: Case, second: Case) -> Case:
    names = [name for name in first.parts if name in second.parts]
    return Case(
        first.key,
        np.concatenate([first.samples, second.samples]),
        np.concatenate([first.launch, second.launch]),
        np.concatenate([first.calls, second.calls]),
        {name: np.concatenate([first.parts[name], second.parts[name]]) for name in names},
        first.facts | {"verified": bool(first.facts.get("verified")) and bool(second.facts.get("verified"))},
    )


SAME = ("hpccoll", "build", "revision")
"""Facts of launches that must not differ within one set of results."""
LAUNCH = (*SAME, "date", "command", "run", "placement")
"""Facts of launches that tell one from another."""


def underneath(launch: Facts) -> str:
    """Return the MPI of a launch, without its build details; "" if none was loaded."""
    return str(launch.get("packages", {}).get("MPI", "")).partition(",")[0]


def differences(several: Sequence[Results]) -> dict[str, str]:
    """Return the versions and revisions of hpccoll, of the MPI below it and of peers that are not the same in all."""
    versions = dict[tuple[str, str], set[str]]()
    for results in several:
        for launch in results.launches:
            for name in SAME:
                versions.setdefault(("launches", name), set()).add(str(launch.get(name, "")))
        for case in results.cases.values():
            versions.setdefault(("library", case.key.library), set()).add(str(case.facts.get("version", "")))
            if case.key.library == "hpccoll":
                below = {underneath(results.launches[number]) for number in np.unique(case.launch)}
                versions.setdefault(("launches", "MPI"), set()).update(below - {""})
    return {name: ", ".join(sorted(found)) for (_, name), found in versions.items() if len(found) > 1}


def merged(several: Sequence[Results], mixed: bool = False) -> Results:
    """Merge results.

    :param mixed: allow different versions or revisions of hpccoll, of the MPI below it, or of a peer
    :raises ResultsError: they differ, and `mixed` is not given; or a launch occurs twice
    """
    whole = Results()
    for results in several:
        whole.add(results)
    refuse_twice(whole)
    if not mixed and (found := differences(several)):
        named = "; ".join(f"{name}: {values}" for name, values in found.items())
        raise ResultsError(
            f"these results are of different versions ({named}), and would be judged as one: measure "
            "again with one version, compare them (`hpccoll bench compare`), or put them together with --mixed"
        )
    return whole


def refuse_twice(results: Results) -> None:
    """Refuse samples that occur twice, which would make intervals too narrow.

    :raises ResultsError: a launch occurs twice: the same facts, and the same samples of a case
    """
    for case in results.cases.values():
        known = set()
        for number in np.unique(case.launch):
            launch = results.launches[number]
            about = json.dumps([launch.get(name) for name in LAUNCH])
            this = about, case.samples[case.launch == number].tobytes()
            if this in known:
                raise ResultsError(
                    f"a launch is there twice ({launch.get('date', 'without a date')}, {launch.get('command', '')}), "
                    "and its samples would count twice: give each file once"
                )
            known.add(this)


def warnings(results: Results) -> list[str]:
    """List the warnings for a reader of these results: those of all launches, each once, and wide intervals."""
    texts = [str(warning) for launch in results.launches for warning in launch.get("warnings", [])]
    wide = [case for case in results.cases.values() if case.facts.get("ended") == "limit"]
    if wide:
        texts.append(
            f"{len(wide)} of {len(results.cases)} cases ended at the limit of their time or repetitions before their "
            "interval was as narrow as asked for (marked *)"
        )
    unverified = [case.key.what for case in results.cases.values() if not case.facts.get("verified")]
    if unverified:
        texts.append(f"results were not verified by hpccoll: {', '.join(dict.fromkeys(unverified))}")
    return together(texts)


LOADED = re.compile(r"(.* was loaded before the ranks began: load average )([\d.]+)( on .*)")
WITHOUT = re.compile(r"(\S+ has no )(\S+)( of .*)")


def together(texts: Iterable[str]) -> list[str]:
    """Return each warning once; merge those that differ only in a load, or in a collective that a library lacks."""
    lines: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        fits = LOADED.fullmatch(text) or WITHOUT.fullmatch(text)
        before, between, behind = fits.groups() if fits else (text, "", "")
        lines.setdefault((before, behind), []).append(between)
    return [before + _joint(list(dict.fromkeys(several))) + behind for (before, behind), several in lines.items()]


def _joint(several: list[str]) -> str:
    """Numbers as a range, words as a list."""
    if len(several) > 1 and several[0][:1].isdigit():
        return f"{min(several, key=float)} to {max(several, key=float)}"
    return ", ".join(several)


def launch_values(launches: Sequence[Facts], name: str) -> str:
    """Return the values of a fact over all launches, each once."""
    return ", ".join(dict.fromkeys(str(launch[name]) for launch in launches if launch.get(name) not in (None, "")))

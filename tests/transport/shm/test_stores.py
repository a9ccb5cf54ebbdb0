# SPDX-License-Identifier: Apache-2.0
"""The choice between ordinary and streaming stores, from recorded times of copies."""

import ctypes
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PLAIN, STREAM = 0, 1
KINDS = {"plain": PLAIN, "stream": STREAM}
SIZES = (16384, 131072)
MS = 1_000_000
BETWEEN = 20_000
"""Ns of a call beside its copy."""


class Choice(ctypes.Structure):
    _fields_ = (
        ("stores", ctypes.c_int),
        ("votes", ctypes.c_int),
        ("left", ctypes.c_int),
        ("unseen", ctypes.c_int),
        ("chance", ctypes.c_uint32),
        ("due", ctypes.c_uint64),
        ("spent", ctypes.c_double * 2),
        ("slowest", ctypes.c_double * 2),
    )


def recorded() -> dict[tuple[str, int], list[tuple[list[int], list[int]]]]:
    """Copies by ordinary stores and streaming ones, in a row, by class and bytes."""
    found = defaultdict(list)
    for line in (Path(__file__).parent / "rates.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        where, size, *words = line.split()
        half = len(words) // 2
        plain, stream = ([int(ns) for ns in words[at + 1 : at + half]] for at in (0, half))
        found[where, int(size)].append((plain, stream))
    return found


RECORDED = recorded()


@pytest.fixture(scope="module")
def library(build_c: Callable[..., Path]) -> ctypes.CDLL:
    found = ctypes.CDLL(str(build_c("ext/transport/shm/stores.c", flags=("-shared",))))
    u64, choice = ctypes.c_uint64, ctypes.POINTER(Choice)
    found.hc__choice_begin.argtypes = [choice, ctypes.c_int]
    found.hc__choice_next.argtypes = [choice, u64]
    found.hc__choice_note.argtypes = [choice, ctypes.c_int, ctypes.c_size_t, u64, u64]
    return found


class Copy(NamedTuple):
    at: int
    stores: int
    is_timed: bool


class Program:
    """A rank that does nothing but call, whose copies take what recorded ones took."""

    def __init__(self, library: ctypes.CDLL, seed: int, stores: int = PLAIN) -> None:
        self.library, self.chance, self.now, self.choice = library, random.Random(seed), 0, Choice()
        self.library.hc__choice_begin(self.choice, stores)
        self.row: list[Iterator[int]] = []
        self.where: tuple[str, int] | None = None

    def took(self, where: str, size: int, stores: int) -> int:
        """The next copy of a recorded row; of another one, when this one is at its end."""
        ns = next(self.row[stores], None) if self.where == (where, size) else None
        if ns is None:
            self.row = [iter(times) for times in self.chance.choice(RECORDED[where, size])]
            self.where, ns = (where, size), next(self.row[stores])
        return ns

    def copy(self, where: str, size: int) -> Copy:
        started, stores, choice = self.now, self.choice.stores, self.choice
        is_timed = choice.unseen <= 0
        choice.unseen -= 1
        if is_timed:
            stores = self.library.hc__choice_next(choice, started)
        self.now += self.took(where, size, stores)
        if is_timed:
            self.library.hc__choice_note(choice, stores, size, started, self.now)
        self.now += BETWEEN
        return Copy(started, stores, is_timed)

    def run(self, where: str, size: int, ms: float) -> list[Copy]:
        end, copies = self.now + ms * MS, []
        while self.now < end:
            copies.append(self.copy(where, size))
        return copies


@pytest.mark.parametrize("size", SIZES)
def test_a_change_is_noticed_within_a_tenth_of_a_second(library: ctypes.CDLL, size: int) -> None:
    """Where the copies are long, in most cases: some of them wait for memory and not for the other L3."""
    program, noticed, right, copies = Program(library, size), 0, 0, 0
    for number in range(60):
        where, wanted = ("far", STREAM) if number % 2 else ("near", PLAIN)
        program.run(where, size, 100)
        noticed += program.choice.stores == wanted
        after = program.run(where, size, 100)
        right += sum(copy.stores == wanted for copy in after)
        copies += len(after)
    assert noticed >= {16384: 58, 131072: 50}[size]
    assert right > {16384: 0.97, 131072: 0.85}[size] * copies


@pytest.mark.parametrize("where", ["near", "far"])
def test_trials_cost_little(library: ctypes.CDLL, where: str) -> None:
    """Few copies are timed, and few by the other kind."""
    program = Program(library, 1)
    program.run(where, 16384, 100)
    copies = program.run(where, 16384, 1000)
    assert sum(copy.is_timed for copy in copies) < 0.1 * len(copies)
    kind = program.choice.stores
    assert 200 < sum(copy.stores != kind for copy in copies) < 0.03 * len(copies)


@pytest.mark.parametrize(("stores", "rates"), [(PLAIN, (1, 100)), (STREAM, (100, 1))])
def test_one_trial_alone_changes_nothing(library: ctypes.CDLL, stores: int, rates: tuple[int, int]) -> None:
    """Not even at the start, where the choice is a guess; later it takes three."""
    choice, decided = Choice(), []
    library.hc__choice_begin(choice, stores)
    for fastest in [rates] * 2 + [rates] * 3 + [rates[::-1]] * 3:
        trial(library, choice, len(decided), 100_000, lambda kind, _, fastest=fastest: 100_000 / fastest[kind])
        decided.append(choice.stores)
    assert decided == [stores] + [1 - stores] * 6 + [stores]


def trial(library: ctypes.CDLL, choice: Choice, number: int, size: int, took: Callable[[int, int], float]) -> None:
    """Make a trial. `took`: ns of a copy, by its stores and its place among the copies with them, from 1."""
    now, decided, copies = number * 100 * MS, 0, [0, 0]
    while not decided:
        kind = library.hc__choice_next(choice, now)
        if not choice.left:
            continue
        copies[kind] += 1
        decided = library.hc__choice_note(choice, kind, size, now, now + int(took(kind, copies[kind])))


def test_a_slow_copy_does_not_count(library: ctypes.CDLL) -> None:
    """The thread lost its core during one copy of a kind."""
    choice = Choice()
    for slow in (PLAIN, STREAM):
        library.hc__choice_begin(choice, PLAIN)
        for number in range(2):
            trial(library, choice, number, 16384, lambda kind, n, slow=slow: 4 * MS if (kind, n) == (slow, 3) else 1000)
        assert choice.stores == PLAIN


def test_a_fast_copy_does_not_count(library: ctypes.CDLL) -> None:
    """Between two L3s, a store is fast to lines that no cache holds: 45 bytes per ns, where the others take 2.5."""
    choice = Choice()
    library.hc__choice_begin(choice, STREAM)
    for number in range(5):
        trial(
            library, choice, number, 262144,
            lambda kind, n: 262144 / (29 if kind == STREAM else 45 if n == 2 else 2.5),
        )  # fmt: skip
    assert choice.stores == STREAM


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rewrites_fast", [0, 1])
def test_trials_are_made_where_they_tell_the_distance(
    build_c: Callable[..., Path], run_c: Callable[..., str], rewrites_fast: int
) -> None:
    """Not with data in the core's cache; where few lines are rewritten fast, not in an operation of one round."""
    program = build_c(
        "tests/transport/shm/stores_in_use.c", "ext/transport/shm/*.c", "ext/transport/kernels/*.c",
        "ext/core/reserve.c", "ext/core/status.c",
        flags=("-Wl,--wrap=hc_shared_copy", "-Wl,--wrap=hc_host_rewrites_fast"),
    )  # fmt: skip
    run_c(program, rewrites_fast, timeout=100)

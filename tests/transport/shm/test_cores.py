# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks of a node can have a core each: the rule against a matching of ranks and cores."""

import ctypes
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

MOST = 2048


class Cores(ctypes.Structure):
    _fields_ = (
        ("word", ctypes.c_uint64 * (MOST // 64)),
        ("group", ctypes.c_uint64),
        ("l3", ctypes.c_uint32),
        ("quota", ctypes.c_uint32),
    )


class Crowd(ctypes.Structure):
    _fields_ = (
        ("ranks", ctypes.c_int32),
        ("cores", ctypes.c_double),
        ("shared", ctypes.c_uint8),
        ("by_quota", ctypes.c_uint8),
    )


@pytest.fixture(scope="module")
def library(build_c: Callable[..., Path]) -> ctypes.CDLL:
    found = ctypes.CDLL(str(build_c("ext/transport/shm/cores.c", flags=("-shared",))))
    found.hc_cores_crowd.restype = Crowd
    return found


def cores(mask: set[int], quota: float = 0, group: int = 0) -> Cores:
    found = Cores(quota=int(quota * 1000), group=group)
    for core in mask:
        found.word[core // 64] |= 1 << core % 64
    return found


def crowd(library: ctypes.CDLL, ranks: Sequence[Cores], machine: int = 0, online: int = 2048) -> Crowd:
    pointers = (ctypes.POINTER(Cores) * len(ranks))(*(ctypes.pointer(one) for one in ranks))
    found: Crowd = library.hc_cores_crowd(pointers, len(ranks), machine or len(ranks), online)
    return found


def can_have_one_each(masks: list[set[int]]) -> bool:
    """Kuhn's algorithm: is there a matching that gives each rank a core?"""
    holder: dict[int, int] = {}

    def place(rank: int, tried: set[int]) -> bool:
        for core in masks[rank] - tried:
            tried.add(core)
            if core not in holder or place(holder[core], tried):
                holder[core] = rank
                return True
        return False

    return all(place(rank, set()) for rank in range(len(masks)))


def nested(rng: random.Random, low: int, high: int) -> list[set[int]]:
    """Masks of which two are apart or one lies in the other."""
    whole = [set(range(low, high))] * rng.randrange(0, 3)
    if high - low < 2:
        return whole
    middle = rng.randrange(low + 1, high)
    return whole + nested(rng, low, middle) + nested(rng, middle, high)


def test_as_a_matching_says(library: ctypes.CDLL) -> None:
    rng = random.Random(7)
    seen = set()
    for _ in range(400):
        masks = nested(rng, 60, 60 + rng.randrange(1, 12)) or [{3}]
        rng.shuffle(masks)
        shared = crowd(library, [cores(mask) for mask in masks]).shared
        assert bool(shared) is not can_have_one_each(masks), masks
        seen.add(shared)
    assert seen == {0, 1}


def test_the_most_crowded_are_named(library: ctypes.CDLL) -> None:
    found = crowd(library, [cores({0, 1}), cores({5}), cores({5}), cores({5})])
    assert (found.ranks, found.cores, found.shared, found.by_quota) == (3, 1, 1, 0)
    found = crowd(library, [cores({0, 1}), cores({5}), cores({7})])
    assert (found.ranks, found.cores, found.shared) == (3, 4, 0)


def test_a_quota_counts_for_those_who_have_it_together(library: ctypes.CDLL) -> None:
    many = set(range(8))
    found = crowd(library, [cores(many, 1.5, 1), cores(many, 1.5, 1), cores(many)])
    assert (found.ranks, found.cores, found.shared, found.by_quota) == (2, 1.5, 1, 1)
    assert not crowd(library, [cores(many, 1.5, group) for group in range(3)]).shared
    assert not crowd(library, [cores(many, 3, 1)] * 3).shared


def test_ranks_of_other_emulated_nodes_use_the_cores_too(library: ctypes.CDLL) -> None:
    here = [cores({0, 1})] * 2
    assert not crowd(library, here, online=2).shared
    assert crowd(library, here, machine=4, online=2).shared


def test_bound_ranks_of_other_emulated_nodes_have_other_cores(library: ctypes.CDLL) -> None:
    """Two ranks, each bound to a core and a node of its own, were said to share one core."""
    found = crowd(library, [cores({0})], machine=2, online=2)
    assert (found.ranks, found.cores, found.shared) == (1, 1, 0)
    found = crowd(library, [cores({0})], machine=3, online=2)
    assert (found.ranks, found.cores, found.shared) == (3, 1, 1)
    found = crowd(library, [cores({0, 1}, 1.5, 1)], machine=2, online=4)
    assert (found.ranks, found.cores, found.by_quota) == (2, 1.5, 1)


def test_of_this_process(library: ctypes.CDLL) -> None:
    found = Cores()
    library.hc_cores_read(ctypes.byref(found))
    own = {core for core in range(MOST) if found.word[core // 64] >> core % 64 & 1}
    assert own == os.sched_getaffinity(0)
    assert library.hc_cores_count(ctypes.byref(found)) == len(own)


def test_the_l3_that_all_cores_of_a_rank_share(library: ctypes.CDLL, tmp_path: Path) -> None:
    library.hc_cores_l3.argtypes = [ctypes.POINTER(Cores), ctypes.c_char_p]
    for cpu in range(8, 24):
        for index, (level, shared) in enumerate([(1, f"{cpu}"), (3, "8-15,72-79" if cpu < 16 else "16-23,80-87")]):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(f"{level}\n")
            (folder / "shared_cpu_list").write_text(f"{shared}\n")

    def l3(*mask: int) -> int:
        return int(library.hc_cores_l3(cores(set(mask)), bytes(tmp_path)))

    assert l3(9) == l3(8, 15, 79) == 1 + 8
    assert l3(16) == l3(17, 80) == 1 + 16
    assert l3(15, 16) == l3(8, 80) == 0
    assert l3(30) == 0

# SPDX-License-Identifier: Apache-2.0
"""The algorithms between nodes, and the contract of a net, with ranks as threads."""

from collections.abc import Callable
from pathlib import Path

import pytest

TRANSPORT = [
    "ext/transport/net/[!m]*.c",
    "ext/transport/kernels/*.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
]
UP_TO = [24, pytest.param(40, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def driver(build_c: Callable[..., Path]) -> Path:
    return build_c("tests/transport/net/net_driver.c", *TRANSPORT)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_algorithm_against_float64(driver: Path, run_c: Callable[..., str], seed: int) -> None:
    """Allreduce and reduce-scatter: 2 to 40 members, all splits, types and reductions, three channels at once."""
    assert "300 cases" in run_c(driver, seed, 300, timeout=100)


@pytest.mark.timeout(120)
def test_direct_gives_equal_bits_however_data_is_cut(driver: Path, run_c: Callable[..., str]) -> None:
    assert "300 cases" in run_c(driver, 11, 300, "cut", timeout=100)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_contract_of_the_local_net(build_c: Callable[..., Path], run_c: Callable[..., str], ranks: int) -> None:
    program = build_c("tests/transport/net/net_contract_local.c", *TRANSPORT)
    assert "ok" in run_c(program, ranks)


def test_the_model_chooses_by_size(build_c: Callable[..., Path], run_c: Callable[..., str]) -> None:
    """Its choices by members and bytes; `pytest -s` prints the table."""
    sources = ("ext/transport/net/choose.c", "ext/transport/net/radices.c", "ext/core/status.c")
    table = run_c(build_c("tests/transport/net/net_model.c", *sources))
    print(table)
    choice = {tuple(line.split()[:3]): line.split()[3] for line in table.splitlines()[1:]}
    # two members: one round is best at every size, and it can carry the narrow type
    assert {choice["2", "float32", size] for size in ("64", "262144", "67108864")} == {"direct"}
    form = {tuple(line.split()[:3]): line.split()[4] for line in table.splitlines()[1:]}
    # few bytes: as few rounds as there can be; many bytes: as few bytes as there can be
    assert choice["64", "float32", "64"] == "stages" and form["64", "float32", "64"] == "whole"
    assert form["64", "float32", "67108864"] == "parts"
    # float16 takes half of the time of float32 where bytes count
    cost = {tuple(line.split()[:3]): float(line.split()[5]) for line in table.splitlines()[1:]}
    assert cost["4608", "float16", "67108864"] < 0.7 * cost["4608", "float32", "67108864"]
    # thousands of members: none sends a message to all
    assert "direct" not in {choice["4608", "float32", size] for size in ("64", "262144", "67108864")}


def test_trees_take_the_fewest_steps(build_c: Callable[..., Path], run_c: Callable[..., str]) -> None:
    """In a simulation of the links: as few as the chain's and the binomial tree's, and no other segments are faster."""
    assert run_c(build_c("tests/transport/net/trees.c", *TRANSPORT)) == "fine\n"


@pytest.fixture(scope="module")
def broadcasts(build_c: Callable[..., Path]) -> Path:
    return build_c("tests/transport/net/broadcasts.c", *TRANSPORT)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("members", UP_TO)
def test_every_broadcast_between_nodes(broadcasts: Path, run_c: Callable[..., str], members: int) -> None:
    """1 to so many members, all roots, all splits: the root's bytes, each received once; the number of messages."""
    assert "cases" in run_c(broadcasts, members, timeout=100)


def test_a_broadcast_takes_the_faster_form(broadcasts: Path, run_c: Callable[..., str]) -> None:
    """By the textbooks' times for 2 to 4,096 members; 8 members never scatter, 1,024 do from 16 KiB on."""
    lines = run_c(broadcasts, "choices").splitlines()
    form = {tuple(map(int, line.split()[:2])): line.split()[2] for line in lines[: len(lines) // 3]}
    assert {form[members, size] for members, size in form if members <= 8} == {"tree"}
    assert {form[1024, size] for members, size in form if members == 1024 and size < 4096} == {"tree"}
    assert {form[1024, 4**k] for k in range(7, 13)} == {"scattered"}


@pytest.fixture(scope="module")
def reduces(build_c: Callable[..., Path]) -> Path:
    return build_c("tests/transport/net/reduces.c", *TRANSPORT)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("members", UP_TO)
def test_every_reduce_between_nodes(reduces: Path, run_c: Callable[..., str], members: int) -> None:
    """1 to so many members, all roots, splits, types and reductions against float64; bytes and number of messages."""
    assert "cases" in run_c(reduces, members, timeout=100)


def test_a_reduce_takes_the_faster_form(reduces: Path, run_c: Callable[..., str]) -> None:
    """By the textbooks' times for 2 to 4,096 members; float16, which a tree sends as float32, is in stages earlier."""
    lines = [line.split() for line in run_c(reduces, "choices").splitlines()]
    form = {(int(n), int(nbytes), dtype): way for n, nbytes, dtype, way, *_ in lines[: len(lines) // 3]}
    assert {way for (members, _, _), way in form.items() if members <= 8} == {"tree"}
    assert {form[1024, 4**k, "float32"] for k in range(3, 6)} == {"tree"}
    assert {form[1024, 4**k, dtype] for k in range(7, 12) for dtype in ("float32", "float16")} == {"stages"}
    in_stages = {dtype: {size for size in form if size[2] == dtype and form[size] == "stages"} for *_, dtype in form}
    assert {size[:2] for size in in_stages["float32"]} < {size[:2] for size in in_stages["float16"]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("runs", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_votes_have_one_outcome_and_every_call_ends(
    build_c: Callable[..., Path], run_c: Callable[..., str], runs: int
) -> None:
    program = build_c(
        "tests/transport/net/votes.c",
        *(f"ext/transport/net/{name}.c" for name in ("vote", "choose", "radices")),
        "ext/core/status.c",
    )
    assert run_c(program, runs, timeout=250) == "fine\n"

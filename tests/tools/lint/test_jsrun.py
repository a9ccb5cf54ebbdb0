# SPDX-License-Identifier: Apache-2.0
"""jsrun's options and resource sets against the examples of the documentation, and against counting by hand."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.tools.lint.jsrun import SUMMIT, Sets, fit, fit_in_sockets, read

DOCUMENTED = {  # OLCF, Summit User Guide: command -> sets, per host, tasks, cores, GPUs of a set
    "-n12 -r6 -a1 -g1 -c1 ./a.out": (12, 6, 1, 1, 1),
    "-n12 -a2 -g1 -c2 -dpacked ./a.out": (12, None, 2, 2, 1),
    "-n 4 -a 6 -c 6 -g 3 -d packed -l GPU-CPU ./a.out": (4, None, 6, 6, 3),
    "-n1 -a42 -c42 -g0 ./a.out": (1, None, 42, 42, 0),
    "-p 6 -c 7 -r 6 -l cpu-cpu -d packed -b rs ./a.out": (6, 6, 1, 7, 0),  # as published job scripts have it
    "-n1 -a1 -c21 -g3 -bpacked:21 ./a.out": (1, None, 1, 21, 3),
    "-n12 -r6 -c7 -g1 -a1 -EOMP_NUM_THREADS=7 -brs ./a.out": (12, 6, 1, 7, 1),
    "--nrs 8192 --tasks_per_rs 16 --cpu_per_rs 16 --gpu_per_rs 3 --rs_per_host 2 --latency_priority gpu-cpu x": (
        8192, 2, 16, 16, 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", DOCUMENTED)
def test_documented_commands(line: str) -> None:
    sets, parsed, wrong = read(tuple(shlex.split(line)))
    assert not wrong
    assert (sets.sets, sets.per_host, sets.tasks, sets.cores, sets.gpus) == DOCUMENTED[line]
    assert parsed.rest in (("./a.out",), ("x",))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-n 0 x", "--nrs 0 is not a whole number from 1"),
        ("-n six x", "--nrs six is not a whole number"),
        ("--nres 4 x", "no option --nres; did you mean --nrs"),
        ("-q x", "no option -q"),
        ("-b tight x", "--bind tight is not none, rs, packed:N"),
        ("-d spread x", "--launch_distribution spread is not packed, cyclic or plane:N"),
        ("-l gpu x", "--latency_priority gpu is not a pair like gpu-cpu"),
        ("-n", "-n needs a value"),
    ],
)
def test_what_is_not_documented_is_refused(line: str, says: str) -> None:
    assert any(says in problem for problem in read(tuple(line.split()))[2])


def test_values_known_only_in_the_job_are_left_open() -> None:
    sets, _, wrong = read(("-n", "$NRS", "-r", "6", "x"))
    assert (sets.sets, sets.per_host, sets.known, wrong) == (None, 6, True, [])
    assert not read(("-n", "4", "-c", "$CORES", "x"))[0].known
    assert not read(("-U", "sets.erf", "x"))[0].known


def test_all_of_a_node() -> None:
    sets, _, wrong = read(("-n", "2", "-r", "1", "-a", "6", "-c", "ALL_CPUS", "-g", "ALL_GPUS", "x"))
    assert (sets.cores, sets.gpus, sets.known, wrong) == (42, 6, True, [])


@pytest.mark.parametrize(
    ("cores", "gpus", "on_node", "in_sockets"),
    [
        (7, 1, 6, 6),
        (21, 3, 2, 2),
        (42, 6, 1, 0),
        (8, 1, 5, 4),
        (14, 2, 3, 2),
        (1, 0, 42, 42),
        (43, 0, 0, 0),
        (1, 7, 0, 0),
    ],
)
def test_sets_that_fit_on_a_node(cores: int, gpus: int, on_node: int, in_sockets: int) -> None:
    sets = Sets(None, None, 1, cores, gpus, 1)
    assert (fit(sets, SUMMIT), fit_in_sockets(sets, SUMMIT)) == (on_node, in_sockets)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 8))
def test_as_many_sets_fit_as_filling_a_node_finds(cores: int, gpus: int) -> None:
    """Put sets on a node until nothing fits any more."""
    free_cores, free_gpus, count = SUMMIT.cores, SUMMIT.gpus, 0
    while free_cores >= cores and free_gpus >= gpus:
        free_cores, free_gpus, count = free_cores - cores, free_gpus - gpus, count + 1
    assert fit(Sets(None, None, 1, cores, gpus, 1), SUMMIT) == count

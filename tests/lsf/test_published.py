# SPDX-License-Identifier: Apache-2.0
"""The stand-in against what others have published: Oak Ridge's guides for jsrun, IBM's for bsub.

The numbers stand in these texts: OLCF, Summit User Guide, "jsrun Examples" (GUIDE), and OLCF's tutorial "jsrun Quick
Start Guide" (QUICK_START), which prints the hardware thread that a rank happened to run on, of the four of its core.
IBM Spectrum LSF 10.1, command reference of bsub (-Q, -W, -wa) and bkill, and lsb.params (JOB_TERMINATE_INTERVAL).
"""

import bsub_options as bsub
import pytest
from resource_sets import SUMMIT, Refused, Shape, parser, place, places

OLDER = Shape(isolated=0)
"""The guide's first example is older than core isolation: core 84 is the first one of the second socket."""
GUIDE = {  # command -> of each rank of a node: hardware thread, GPUs
    "-n12 -r6 -a1 -g1 -c1": [(0, "0"), (4, "1"), (8, "2"), (84, "3"), (89, "4"), (92, "5")],
    "-n12 -a2 -g1 -c2 -dpacked": [
        (0, "0"), (4, "0"), (8, "1"), (12, "1"), (16, "2"), (20, "2"),
        (88, "3"), (92, "3"), (96, "4"), (100, "4"), (104, "5"), (108, "5"),
    ],
    "-n 4 -a 6 -c 6 -g 3 -d packed -l GPU-CPU": [
        *((thread, "0, 1, 2") for thread in (0, 4, 8, 12, 16, 20)),
        *((thread, "3, 4, 5") for thread in (88, 92, 96, 100, 104, 108)),
    ],
}  # fmt: skip
QUICK_START = {
    "-n6 -c7 -g1 -a1": [(1, "0"), (29, "1"), (58, "2"), (89, "3"), (117, "4"), (145, "5")],
    "-n2 -c21 -g3 -a3 -bpacked:1 -dpacked": [
        *((thread, "0, 1, 2") for thread in (0, 6, 10)), *((thread, "3, 4, 5") for thread in (89, 94, 97)),
    ],
    "-n2 -c21 -g3 -a3 -bpacked:1 -dcyclic": [
        (2, "0, 1, 2"), (89, "3, 4, 5"), (6, "0, 1, 2"), (93, "3, 4, 5"), (10, "0, 1, 2"), (97, "3, 4, 5"),
    ],
}  # fmt: skip


def placed(command: str, nodes: int = 2, shape: Shape = SUMMIT) -> list[tuple[int, str, list[int], str]]:
    """Return of each rank its node, its cores by their first hardware threads, and its GPUs."""
    hosts = [f"h{i}" for i in range(nodes)]
    return [
        (task.rank, task.host, [shape.first_thread(core) for core in task.cores], ", ".join(map(str, task.gpus)))
        for task in place(parser().parse_args(command.split()), hosts, shape)
    ]


@pytest.mark.parametrize("command", GUIDE)
def test_the_guides_examples_on_two_nodes(command: str) -> None:
    shape = OLDER if "-r6" in command else SUMMIT
    ranks = [(host, *of_rank) for host in ("h0", "h1") for of_rank in GUIDE[command]]
    assert placed(command, shape=shape) == [
        (rank, host, [thread // 4 * 4], gpus) for rank, (host, thread, gpus) in enumerate(ranks)
    ]


@pytest.mark.parametrize("command", QUICK_START)
def test_the_quick_start_guides_examples_on_one_node(command: str) -> None:
    assert placed(command, nodes=1) == [
        (rank, "h0", [thread // 4 * 4], gpus) for rank, (thread, gpus) in enumerate(QUICK_START[command])
    ]


def test_threads_of_a_rank_get_cores_by_binding() -> None:
    """The guide's ranks 0, 1, 10 and 11 with four threads each; the quick start guide's example 2 with two."""
    found = placed("-n12 -a1 -c4 -g1 -b packed:4 -d packed")
    assert [found[rank][1:3] for rank in (0, 1, 10, 11)] == [
        ("h0", [0, 4, 8, 12]),
        ("h0", [16, 20, 24, 28]),
        ("h1", [104, 108, 112, 116]),
        ("h1", [120, 124, 128, 132]),
    ]
    threads = [(1, 4), (29, 32), (57, 60), (88, 92), (117, 120), (145, 148)]
    assert [rank[2] for rank in placed("-n6 -c7 -g1 -a1 -bpacked:2", 1)] == [[a // 4 * 4, b] for a, b in threads]


@pytest.mark.parametrize(("smt", "printed"), [(2, "{0:2}"), (4, "{0:4}")])
def test_hardware_threads(smt: int, printed: str) -> None:
    """The guide's `jsrun -n1 -c1 -a1 -bpacked:4 csh -c 'echo $OMP_PLACES'`."""
    (task,) = place(parser().parse_args("-n1 -c1 -a1 -bpacked:4".split()), ["h0"])
    assert places(task, SUMMIT, smt) == printed


@pytest.mark.parametrize(
    ("command", "nodes", "ranks", "cores", "gpus"),
    [
        ("-n 4092 -r 2 -a 12 -g 3", 2048, 49104, 1, 3),  # the guide's batch script
        ("-n1 -a42 -c42 -g0", 1, 42, 1, 0),  # the guide's common use cases
        ("-n1 -a1 -c1 -g2", 1, 1, 1, 2),
        ("-n1 -a1 -c21 -g3 -bpacked:21", 1, 1, 21, 3),
        ("-n1 -g1 -a2 -c16 -bpacked:8", 1, 2, 8, 1),  # the guide's table "aprun to jsrun"
        ("-n1 -g1 -a2 -c1", 1, 2, 1, 1),
    ],
)
def test_the_guides_tables(command: str, nodes: int, ranks: int, cores: int, gpus: int) -> None:
    found = placed(command, nodes)
    assert len(found) == ranks
    assert {(len(of_rank[2]), len(of_rank[3].split())) for of_rank in found} == {(cores, gpus)}


def test_sets_that_do_not_fit_are_refused() -> None:
    for command in ("-n13 -g1", "-n3 -r1", "-n1 -c43", "-n1 -g7"):
        with pytest.raises(Refused, match="do not fit on 2 nodes"):
            placed(command)


# ---- bsub ----------------------------------------------------------------------------------------

BATCH_SCRIPT = """#!/bin/bash
# Begin LSF Directives
#BSUB -P ABC123
#BSUB -W 3:00
#BSUB -nnodes 2048
#BSUB -alloc_flags gpumps
#BSUB -J RunSim123
#BSUB -o RunSim123.%J
#BSUB -e RunSim123.%J

jsrun -n 4092 -r 2 -a 12 -g 3 ./a.out
"""


def test_the_guides_batch_script() -> None:
    """Its table of lines says what each option asks for; on the command line they are the same."""
    options = bsub.of_script(BATCH_SCRIPT)
    assert options["P"] == "ABC123" and bsub.minutes(options["W"]) == 180 and options["o"] == "RunSim123.%J"
    assert bsub.shape(options, 42) == bsub.Shape(2048, 42, True)
    assert bsub.read("-nnodes 2 -Pprj123 -W02:00 a.sh".split()) == (
        {"nnodes": "2", "P": "prj123", "W": "02:00"},
        ["a.sh"],
    )


def test_the_schedule_of_signals() -> None:
    """IBM's example: -W 60 -wt 2 -wa URG. At the limit SIGUSR2, after ten minutes INT, TERM and KILL, 10 s apart."""
    options = bsub.read("-W 60 -wt 2 -wa URG".split())[0]
    end = [(4200, "INT"), (4210, "TERM"), (4220, "KILL")]
    assert bsub.signals(options, 60, None, 10) == [(58 * 60, "URG"), (3600, "USR2"), *end]
    assert bsub.signals({"W": "3:30"}, 60, None, 10)[0] == (210 * 60, "USR2")
    assert bsub.signals({"W": "60", "wa": "URG"}, 60, None, 10)[0] == (3600, "USR2")  # -wa needs -wt
    assert bsub.signals({}, 60, 5.0, 10) == [(5, "INT"), (15, "TERM"), (25, "KILL")]  # bkill


@pytest.mark.parametrize(
    ("codes", "status", "again"),
    [("99", 99, True), ("99", 0, False), ("all ~1 ~2", 1, False), ("all ~1 ~2", 3, True), ("", 1, False)],
)
def test_statuses_that_requeue(codes: str, status: int, again: bool) -> None:
    """`-Q "[all] [~number ...] | [number ...]"`."""
    assert bsub.requeues({"Q": codes} if codes else {}, status) is again

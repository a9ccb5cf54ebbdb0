# SPDX-License-Identifier: Apache-2.0
"""Programs over the C interface: random ones, whose results are checked, and wrong ones."""

import signal
from pathlib import Path

import numpy as np
import pytest

STRICT = ("-std=c11", "-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iext")


@pytest.fixture(scope="module")
def program(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "tests/capi/program.c")


@pytest.fixture(scope="module")
def plans(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "tests/capi/plans.c")


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 1), (4, 2)])
def test_random_programs(program, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, program, ranks, 60, nodes=nodes)


@pytest.mark.timeout(200)
def test_with_all_threads_of_mpi(program, job) -> None:
    assert "fine\n" in job(3, program, 9, 40, "threads", nodes=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 1), (3, 2)])
def test_plans(plans, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, plans, ranks, 30, nodes=nodes)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [pytest.param(1, 1, marks=pytest.mark.slow), (2, 1), pytest.param(4, 1, marks=pytest.mark.slow), (4, 2)],
)
def test_halos(mpicc, compiled, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, compiled(mpicc, *STRICT, "tests/capi/halo.c"), ranks, 30, nodes=nodes)


@pytest.mark.timeout(200)
def test_the_halo_of_the_documentation(mpicc, compiled, job, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "from-c.md").read_text()
    text = page.partition("## Grids and halos")[2].partition("```c\n")[2].partition("```")[0]
    (tmp_path / "halo.c").write_text(text)
    printed = job(2, compiled(mpicc, *STRICT, tmp_path / "halo.c"))
    u = np.zeros((102, 40))
    u[0] = 1
    for _ in range(100):
        around = u[:-2] + u[2:] + np.roll(u, 1, 1)[1:-1] + np.roll(u, -1, 1)[1:-1]
        u[1:-1] = 0.2 * (around + u[1:-1])
    assert f"rank 0 at (0, 0): {u[1, 0]:g}\n" in printed and f"rank 1 at (1, 0): {u[51, 0]:g}\n" in printed


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(2, 1, marks=pytest.mark.slow), (3, 2)])
def test_wrong_calls_are_clear_errors(mpicc, compiled, job, ranks: int, nodes: int) -> None:
    program = compiled(mpicc, *STRICT, "tests/capi/wrong.c")
    assert "fine\n" in job(ranks, program, nodes=nodes)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(1, 1, marks=pytest.mark.slow), (4, 2)])
def test_reductions_of_the_programs_own(mpicc, compiled, job, ranks: int, nodes: int) -> None:
    program = compiled(mpicc, *STRICT, "tests/capi/reductions.c", "-lm")
    assert "fine\n" in job(ranks, program, nodes=nodes)


@pytest.mark.timeout(200)
def test_stages_follow_the_network(mpicc, compiled, job) -> None:
    printed = job(4, compiled(mpicc, *STRICT, "-D_DEFAULT_SOURCE", "tests/capi/order.c"), nodes=4)
    assert "fine\n" in printed and "HPCCOLL_NODES=4, ordered by Slurm's topology (2 switches); " in printed
    assert printed.count("ordered by host names: Slurm's topology on rank 0; host names on rank 2") == 1


@pytest.mark.timeout(200)
def test_the_programs_own_mpi_goes_on(mpicc, compiled, job) -> None:
    assert "fine\n" in job(2, compiled(mpicc, *STRICT, "tests/capi/beside_mpi.c"), nodes=1)


@pytest.mark.timeout(200)
def test_a_thread_that_must_not_drive_says_that_it_waits(mpicc, compiled, job) -> None:
    printed = job(2, compiled(mpicc, *STRICT, "-D_DEFAULT_SOURCE", "-pthread", "tests/capi/resting.c"), nodes=2)
    assert "fine\n" in printed
    assert "hpccoll: rank 0: a thread has waited 1" in printed
    assert " s, and the thread that made the World has made no call" in printed


@pytest.mark.timeout(200)
def test_a_refusal_for_lack_of_memory_leaves_the_world_alive(mpicc, compiled, job) -> None:
    program = compiled(mpicc, *STRICT, "-D_DEFAULT_SOURCE", "tests/capi/memory.c")
    assert "fine\n" in job(3, program, nodes=2)


@pytest.mark.timeout(200)
def test_threads_that_call_at_once(mpicc, compiled, job) -> None:
    program = compiled(mpicc, *STRICT, "-pthread", "tests/capi/threads.c")
    assert "fine\n" in job(3, program, 4, 40, nodes=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("nodes", "options"), [(1, "background=0"), (2, "background=0"), (2, "background=1")])
def test_worlds_of_threads_end_in_one_order(mpicc, compiled, job, nodes: int, options: str) -> None:
    """Ranks that end two Worlds in different orders wait for each other."""
    assert "fine\n" in job(3, compiled(mpicc, *STRICT, "-pthread", "tests/capi/finalize.c"), options, nodes=nodes)


@pytest.mark.timeout(200)
def test_a_rank_that_is_lost_before_the_end_is_an_error_of_the_end(mpicc, compiled, job, tmp_path: Path) -> None:
    """The trace lies in a folder with the scheduler's number of the job, as docs/trace.md says."""
    program = compiled(mpicc, *STRICT, "-D_DEFAULT_SOURCE", "tests/capi/lost.c")
    here = ["env", f"--chdir={tmp_path}", "LSB_JOBID=4711", "HPCCOLL_TRACE_DIR="]
    assert "fine\n" in job(2, *here, program, status=128 + signal.SIGKILL)
    assert [file.name for file in tmp_path.iterdir()] == ["hpccoll-trace-4711"]


@pytest.fixture(scope="module")
def sets(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "-D_DEFAULT_SOURCE", "-pthread", "tests/capi/sets.c")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("times", [300, pytest.param(10000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_many_sets_leave_nothing(sets, job, ranks: int, nodes: int, times: int) -> None:
    assert "fine\n" in job(ranks, sets, "many", times, nodes=nodes)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rank_that_cannot_map_its_set_tells_the_others(sets, job, build_c, nodes: int) -> None:
    mapping = build_c("tests/api/mapping.c", flags=("-shared", "-ldl"), name="mapping.so")
    assert "fine\n" in job(3, sets, "fail", nodes=nodes, LD_PRELOAD=mapping)


@pytest.mark.timeout(200)
def test_threads_that_make_sets_at_once_are_an_error_on_all_ranks(sets, job) -> None:
    assert "fine\n" in job(2, sets, "threads")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_threads_under_a_sanitizer(build_c, mpicc, job, library_sources, tmp_path) -> None:
    """Open MPI is not instrumented: what happens inside its libraries is not looked at.

    Two of their ways do not work beside the sanitizer's memory: PMIx's shared segment at a fixed address, and UCX's
    hooks in the end of a thread. UCX ends by unlocking a mutex that is not locked.
    """
    names = ("libmpi.so", "libopen-pal.so", "libpmix.so", "libevent_core", "libucs.so", "libuct.so", "libucp.so")
    passed_by = [f"{kind}:{name}\n" for name in names for kind in ("called_from_lib", "race")]
    (tmp_path / "passed_by").write_text("".join(passed_by))
    flags = ("-fsanitize=thread", "-ldl")
    made = build_c("tests/capi/threads.c", *library_sources, flags=flags, compiler=mpicc, name="capi-thread")
    tsan = f"suppressions={tmp_path}/passed_by report_mutex_bugs=0"
    options = {"PMIX_MCA_gds": "hash", "UCX_MEM_EVENTS": "n", "TSAN_OPTIONS": tsan}
    for ranks, nodes in ((2, 1), (3, 2)):
        assert "fine\n" in job(ranks, made, 3, 10, nodes=nodes, **options)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", ["program", "plans", "halo", "reductions"])
def test_random_programs_under_sanitizers(build_c, mpicc, job, library_sources, source: str) -> None:
    """The library's sources in the program; Open MPI itself is not instrumented, so its own leaks are not looked at."""
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ldl", "-lm")
    made = build_c(
        f"tests/capi/{source}.c", *library_sources, flags=flags, compiler=mpicc, name=f"capi-address-{source}"
    )
    for ranks, nodes in ((2, 1), (3, 2)):
        output = job(ranks, made, ranks, 40, "threads", nodes=nodes, ASAN_OPTIONS="detect_leaks=0")
        assert "fine\n" in output

# SPDX-License-Identifier: Apache-2.0
"""Programs over the C interface: random ones, whose results are checked, and wrong ones."""

from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRICT = ("-std=c11", "-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iext")


@pytest.fixture(scope="module")
def program(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "tests/capi/program.c")


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (3, 1), (4, 2)])
def test_random_programs(program, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, program, ranks, 60, nodes=nodes)


@pytest.mark.timeout(200)
def test_with_all_threads_of_mpi(program, job) -> None:
    assert "fine\n" in job(3, program, 9, 40, "threads", nodes=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (3, 2)])
def test_wrong_calls_are_clear_errors(mpicc, compiled, job, ranks: int, nodes: int) -> None:
    program = compiled(mpicc, *STRICT, "tests/capi/wrong.c")
    assert "fine\n" in job(ranks, program, nodes=nodes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_programs_under_sanitizers(build_c, mpicc, job) -> None:
    """The library's sources in the program; Open MPI itself is not instrumented, so its own leaks are not looked at."""
    folders = ("core", "transport", "loop", "api")
    files = [file for folder in folders for file in glob(f"ext/{folder}/**/*.c", root_dir=ROOT, recursive=True)]
    sources = ["tests/capi/program.c", *sorted(file for file in files if not file.endswith("/mpi.c"))]
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ldl")
    made = build_c(*sources, flags=flags, compiler=mpicc, name="capi-address")
    for ranks, nodes in ((2, 1), (3, 2)):
        output = job(ranks, made, ranks, 60, "threads", nodes=nodes, ASAN_OPTIONS="detect_leaks=0")
        assert "fine\n" in output

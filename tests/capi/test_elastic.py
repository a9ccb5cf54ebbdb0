# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of programs in C and C++: ranks are lost, leave and come in, and the sum of all steps stays right.

elastic.c and elastic.cpp check the result themselves, and print "fine".
"""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
STRICT = ("-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iext")
GONE = "the launcher of the job is gone"
Job = Callable[..., str]


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("cc", "-std=c11", "-D_DEFAULT_SOURCE", *STRICT, "tests/capi/elastic.c")


def begun(output: str) -> list[tuple[int, int, int]]:
    """Rank, size and step of each World that a rank has got."""
    found = re.findall(r"rank (\d+) of (\d+) begins at step (\d+)", output)
    return sorted((int(rank), int(size), int(step)) for rank, size, step in found)


def steps_of(output: str, size: int) -> list[int]:
    """The steps that the ranks have when they begin a World of this size."""
    return [step for _, found, step in begun(output) if found == size]


def test_ranks_go_on_after_a_loss_and_a_new_one_gets_the_state(program: Path, elastic_job: Job) -> None:
    output = elastic_job(program, 30, "10:1:kill", "15:0:until=3")
    loss = r"rank [02] of 3 lost 1 of 3, first 1: .*rank 1 \(host \S+, pid \d+\) was lost: its process is gone"
    assert len(re.findall(loss, output)) == 2, output
    assert output.count("fine: rank") == 3 and "0 losses" in output, output
    assert set(steps_of(output, 3)) <= {0, *range(10, 16)}, output  # the new rank comes when it likes


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_two_losses_in_a_row(program: Path, elastic_job: Job, nodes: str) -> None:
    """Between nodes, too, in a program that drives alone."""
    options = ("-np", "4", "--min-np", "2", "--host-failures", "100")
    deeds = ("10:1:kill", "15:0:until=4", "20:0:kill", "20:3:kill", "25:0:until=4")
    output = elastic_job(program, 30, *deeds, options=options, HPCCOLL_NODES=nodes, HPCCOLL_BACKGROUND=2 - int(nodes))
    assert output.count("fine: rank") == 4, output
    assert "first 1: " in output and ("first 0: " in output or "first 3: " in output), output


def test_a_rank_that_gets_sigterm_leaves_without_a_lost_step(program: Path, elastic_job: Job) -> None:
    output = elastic_job(program, 30, "10:1:term", "25:0:until=-2")
    assert output.count("fine: rank") == 2 and output.count(" 0 losses") == 2, output
    told = r"released: the World was not made: the job does not need this process any more \(.*\): end it with status 0"
    assert len(re.findall(told, output)) == 1, output
    assert len(set(steps_of(output, 2))) == 1, output  # all have stopped after the same step


def test_ranks_come_and_go_as_the_script_says(program: Path, elastic_job: Job, tmp_path: Path) -> None:
    """From a World of one rank to three, and to two."""
    (tmp_path / "hosts").write_text("localhost:1\n")
    options = ("-np", "1", "--min-np", "1", "--host-discovery-script", f"cat {tmp_path}/hosts")
    deeds = ("10:0:hosts=localhost:3", "15:0:until=3", "20:0:hosts=localhost:2", "25:0:until=-2")
    output = elastic_job(program, 30, *deeds, options=options)
    assert output.count("fine: rank") == 2 and "released: " in output, output
    assert sorted(size for _, size, _ in begun(output)) == [1, 2, 2, 3, 3, 3], output


def with_a_loss_at_the_start(program: str, folder: Path) -> tuple[str, ...]:
    """The command of a rank. Worker 1 is in the first generation, and dies before it has exchanged a value."""
    dies = folder / "dies.py"
    lines = ["import os, signal", "from hpccoll.rendezvous import coordinator"]
    lines += ["coordinator.of_process(os.environ).come()", "os.kill(os.getpid(), signal.SIGKILL)"]
    dies.write_text("\n".join(lines))
    return "bash", "-c", f"if [ $_HPCCOLL_WORKER = 1 ]; then exec {sys.executable} {dies}; fi; exec {program}"


def test_a_rank_that_is_lost_during_the_start_is_named(program: Path, elastic_job: Job, tmp_path: Path) -> None:
    output = elastic_job(*with_a_loss_at_the_start(f"{program} 20 10:0:until=3", tmp_path))
    assert output.count("fine: rank") == 3, output
    assert output.count("the World was not made: generation 1 has ended: rank 1 was lost\n") == 2, output


def test_a_rank_that_is_awaited_too_long_during_the_start_is_an_error(
    program: Path, elastic_job: Job, tmp_path: Path
) -> None:
    """It is in the first generation, and does nothing there."""
    sleeps = tmp_path / "sleeps.py"
    lines = "import os, time", "from hpccoll.rendezvous import coordinator"
    sleeps.write_text("\n".join([*lines, "coordinator.of_process(os.environ).come()", "time.sleep(3)", "os._exit(1)"]))
    line = f"if [ $_HPCCOLL_WORKER = 1 ]; then exec {sys.executable} {sleeps}; fi; exec {program} 20"
    output = elastic_job("bash", "-c", line, options=("-np", "2", "--min-np", "2"), status=1, HPCCOLL_START_TIMEOUT=1)
    words = "not all ranks have come to step 0 of the start within 1 s (HPCCOLL_START_TIMEOUT)"
    assert f"it ends: the World was not made: {words}\n" in output, output


def test_steps_go_on_without_the_launcher(program: Path, elastic_job: Job) -> None:
    output = elastic_job(program, 30, "10:2:launcher", status=-signal.SIGKILL)
    assert output.count("fine: rank") == 3, output
    assert output.count(f"{GONE}: training goes on, and the next change of the ranks ends it\n") == 1, output


def test_a_loss_without_the_launcher_ends_the_job(program: Path, elastic_job: Job) -> None:
    output = elastic_job(program, 30, "10:2:launcher", "12:1:kill", status=-signal.SIGKILL)
    assert output.count(f"it ends: the World was not made: {GONE} (the other end has closed the connection)") == 2, (
        output
    )


def test_a_program_in_cpp(needs: Callable[..., None], compiled: Callable[..., Path], elastic_job: Job) -> None:
    """Rank 1 kills itself, and what comes in leaves."""
    needs("g++")
    program = compiled("g++", "-std=c++20", *STRICT, "tests/capi/elastic.cpp")
    output = elastic_job(program)
    assert output.count("fine\n") == 2 and output.count("lost rank 1 of 3\n") == 2, output


def test_the_example_of_the_docs(compiled: Callable[..., Path], elastic_job: Job, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-c.md").read_text()
    found = re.search(r"^## Elastic jobs$.*?```c\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert found
    source = tmp_path / "example.c"
    source.write_text(found[1])
    program = compiled("cc", "-std=c11", "-D_DEFAULT_SOURCE", *STRICT, source)
    output = elastic_job(*with_a_loss_at_the_start(str(program), tmp_path))
    assert output.count("step 1000, field[999] 999\n") >= 2, output


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_under_sanitizers(
    build_c: Callable[..., Path], elastic_job: Job, library_sources: list[str], sanitizer: str
) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-ldl", "-lm")
    program = build_c("tests/capi/elastic.c", *library_sources, flags=flags, name=f"elastic-{sanitizer[:6]}")
    output = elastic_job(program, 30, "10:1:kill", "15:0:until=3", "20:2:term", "25:0:until=-2")
    assert output.count("fine: rank") == 2, output


def test_what_is_wrong_is_said(compiled: Callable[..., Path], elastic_job: Job) -> None:
    wrong = compiled("cc", "-std=c11", "-D_DEFAULT_SOURCE", *STRICT, "tests/capi/elastic_wrong.c")
    assert elastic_job(wrong, options=("-np", "2", "--min-np", "2")).count("fine\n") == 2

# SPDX-License-Identifier: Apache-2.0
"""Rank 0 reads the standard input of `hpccoll run`, and its end; the other ranks read its end at once."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
LINES = "".join(f"line {i}\n" for i in range(20000))  # more than a pipe holds
RANK = os.path.join(sys.prefix, "bin", "python"), "-c"
READ = (
    "import os, sys; text = sys.stdin.read()\n"
    "rank = next(os.environ[n] for n in ('OMPI_COMM_WORLD_RANK', 'PMI_RANK', '_HPCCOLL_RANK') if n in os.environ)\n"
    "print(f'<{rank} {len(text)} {text[-11:].strip()}>', flush=True)"
)


def run(launcher: str, command: tuple[str, ...] = (*RANK, READ), **options: object) -> str:
    words = ["run", "-np", "2", "--timeout", "30", *(["--launcher", launcher] if launcher else []), *command]
    done = subprocess.run(
        [sys.executable, "-m", "hpccoll", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=60, **options,
    )  # type: ignore[call-overload]  # fmt: skip
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


both = pytest.mark.parametrize("launcher", ["", "ssh"])


@both
def test_a_pipe(launcher: str) -> None:
    printed = run(launcher, input=LINES)
    assert f"<0 {len(LINES)} line 19999>" in printed and "<1 0 >" in printed


@both
def test_a_file_of_which_a_part_was_read_before(launcher: str, tmp_path: Path) -> None:
    (tmp_path / "input").write_text(LINES)
    with (tmp_path / "input").open("rb", buffering=0) as file:
        file.read(7)
        printed = run(launcher, stdin=file)
    assert f"<0 {len(LINES) - 7} line 19999>" in printed and "<1 0 >" in printed


@both
def test_a_named_pipe_whose_writer_has_ended(launcher: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "pipe").write_text("a line\n")
    printed = run(launcher, stdin=reader)
    os.close(reader)
    assert "<0 7 a line>" in printed and "<1 0 >" in printed


@both
@pytest.mark.parametrize("is_closed", [False, True])
def test_none(launcher: str, is_closed: bool) -> None:
    close = {"preexec_fn": lambda: os.close(0)} if is_closed else {}
    printed = run(launcher, stdin=subprocess.DEVNULL, **close)
    assert "<0 0 >" in printed and "<1 0 >" in printed


@both
def test_a_terminal(launcher: str) -> None:
    ours, terminal = pty.openpty()
    os.write(ours, b"typed\n\x04")
    printed = run(launcher, stdin=terminal, start_new_session=True)
    os.close(ours)
    os.close(terminal)
    assert "<0 6 typed>" in printed and "<1 0 >" in printed


def test_an_input_that_nobody_reads() -> None:
    assert run("", ("true",), input=LINES) == ""


def test_where_proc_shows_the_processes_of_the_host(needs: Callable[..., None]) -> None:
    """A container without a /proc of its own: the launcher has the number 2, which is the kernel's in /proc."""
    unshare = ["unshare", "--pid", "--fork", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        needs("root")
    words = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "hpccoll", "run", "--launcher", "ssh"]
    done = subprocess.run(
        [*unshare, *words, "-np", "1", "--timeout", "30", *RANK, READ], input=LINES, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"<0 {len(LINES)} line 19999>\n"

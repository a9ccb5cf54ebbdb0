# SPDX-License-Identifier: Apache-2.0
"""No command complains when the user ends it: by `hpccoll ... | head`, which closes the pipe, or by Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\npython train.py\n"


@pytest.mark.parametrize("words", ["run --show -np 2 true", "submit --sites", "lint job.sh", "info", "doctor"])
def test_a_reader_that_has_left(words: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(SCRIPT)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hpccoll", *words.split()],
        cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=110, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def ended_by(error: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that raises an exception."""
    script = (
        "import sys, hpccoll.__main__ as command\n"
        f"def failing(words): raise {error}\n"
        "command.execute = failing\n"
        "sys.exit(command.main())\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=110, check=False)


def test_another_broken_pipe_is_an_error() -> None:
    """The pipe of a child process may break, too: such a fault is reported, whatever becomes of the output."""
    done = ended_by("BrokenPipeError('of somebody else')")
    assert done.returncode == 1
    assert "BrokenPipeError: of somebody else" in done.stderr


def test_an_interrupt_before_a_command_handles_it() -> None:
    done = ended_by("KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")

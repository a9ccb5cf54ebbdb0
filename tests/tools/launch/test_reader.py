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


def test_another_broken_pipe_is_an_error() -> None:
    """The pipe of a child process may break, too: such a fault is reported, whatever becomes of the output."""
    script = (
        "import sys, hpccoll.__main__ as command\n"
        "def broken(words): raise BrokenPipeError('of somebody else')\n"
        "command.execute = broken\n"
        "sys.exit(command.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1
    assert "BrokenPipeError: of somebody else" in done.stderr


def test_an_interrupt_before_a_command_handles_it() -> None:
    script = (
        "import sys, hpccoll.__main__ as command\n"
        "def interrupted(words): raise KeyboardInterrupt\n"
        "command.execute = interrupted\n"
        "sys.exit(command.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")

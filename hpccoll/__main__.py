# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll` (also `python -m hpccoll`); each subcommand is a package or module of hpccoll.tools."""

import argparse
import os
import select
import sys

import hpccoll
from hpccoll.tools import c_library, info
from hpccoll.tools.bench import cli as bench
from hpccoll.tools.doctor import command as doctor
from hpccoll.tools.launch import cli as run
from hpccoll.tools.lint import cli as lint
from hpccoll.tools.model import cli as model
from hpccoll.tools.study import cli as study
from hpccoll.tools.submit import cli as submit
from hpccoll.tools.trace import cli as trace
from hpccoll.tools.tune import cli as tune

READER_LEFT = 128 + 13
"""Exit status of a command whose output nobody reads any more, as a shell gives it for SIGPIPE."""


def main(words: list[str] | None = None) -> int:
    """Execute the command line. A closed pipe on standard output, as `head` leaves it, is no error to report.

    :param words: the arguments; None: those of the process
    :returns: the exit status
    """
    try:
        try:
            return execute(words)
        finally:
            print(end="", flush=True)  # flush here, because the interpreter's end would print a traceback
    except BrokenPipeError:
        if not reader_has_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT


def execute(words: list[str] | None) -> int:
    """Pass the arguments to the subcommand.

    :returns: the exit status
    """
    parser = argparse.ArgumentParser(
        prog="hpccoll", description="Collective operations for the ranks of a job.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"hpccoll {hpccoll.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run.add_parser(commands)
    submit.add_parser(commands)
    lint.add_parser(commands)
    info.add_parser(commands)
    c_library.add_parser(commands)
    doctor.add_parser(commands)
    trace.add_parser(commands)
    bench.add_parser(commands)
    study.add_parser(commands)
    model.add_parser(commands)
    tune.add_parser(commands)
    arguments = parser.parse_args(words)
    status: int = arguments.main(arguments)
    return status


def reader_has_left() -> bool:
    """Whether the other end of standard output is closed; a broken pipe may also be another one."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


if __name__ == "__main__":
    sys.exit(main())

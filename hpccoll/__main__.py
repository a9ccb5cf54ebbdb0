# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll` (also `python -m hpccoll`); each subcommand is a package or module of hpccoll.tools.

Only the named subcommand is imported: to import all of them takes longer than the start of a job.
"""

import argparse
import importlib
import io
import os
import select
import signal
import sys

import hpccoll
from hpccoll.tools.as_given import AS_GIVEN

COMMANDS = {
    "run": "launch.cli",
    "horovodrun": "horovodrun",
    "submit": "submit.cli",
    "lint": "lint.cli",
    "info": "info",
    "config": "c_library",
    "doctor": "doctor.command",
    "trace": "trace.cli",
    "bench": "bench.cli",
    "study": "study.cli",
    "model": "model.cli",
    "tune": "tune.cli",
}
"""The module of each subcommand, below hpccoll.tools, in the order of the help."""
READER_LEFT = 128 + 13
"""Exit status after the reader of the output has closed the pipe, as in a shell for SIGPIPE."""


def main(words: list[str] | None = None) -> int:
    """Execute the command line. A closed pipe on standard output, as `head` leaves it, is no error to report.

    A full disk behind it is one sentence. An interrupt is no error; it ends this process by its signal, so that a shell
    ends its script, too.

    :param words: the arguments; None: those of the process
    :returns: the exit status
    """
    _open_closed_outputs()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors=AS_GIVEN)
    try:
        try:
            return execute(words)
        finally:
            print(end="", flush=True)  # flush here, because the interpreter's end would print a traceback
    except BrokenPipeError:
        if not reader_has_left():
            raise
        _discard_output()
        return READER_LEFT
    except OSError:
        if problem := output_problem():
            print(f"hpccoll: standard output: {problem}", file=sys.stderr)
            _discard_output()
            return 1
        raise
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return 128 + signal.SIGINT  # it is blocked


def execute(words: list[str] | None) -> int:
    """Pass the arguments to the subcommand.

    A subcommand that takes any number of words has a default `further`: the name of their list, and the type of each.
    They may then also stand behind options.

    :returns: the exit status
    """
    parser = argparse.ArgumentParser(
        prog="hpccoll", description="Collective operations for the ranks of a job.", allow_abbrev=False
    )
    words = sys.argv[1:] if words is None else words
    asks_version = words[:1] == ["--version"]
    version = hpccoll.__version__ if asks_version else ""  # to know it takes the import of the core
    parser.add_argument("--version", action="version", version=f"hpccoll {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in words[:1] if words[:1] and words[0] in COMMANDS else () if asks_version else COMMANDS:
        importlib.import_module(f"hpccoll.tools.{COMMANDS[name]}").add_parser(commands)
    arguments, rest = parser.parse_known_args(words)
    name, kind = getattr(arguments, "further", ("", str))
    if name and not any(word.startswith("-") for word in rest):  # argparse takes words in one place only
        getattr(arguments, name).extend(map(kind, rest))
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    status: int = arguments.main(arguments)
    return status


def _open_closed_outputs() -> None:
    """Let a standard output or error that the caller has closed go nowhere: Python has None in place of the file."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            os.set_inheritable(descriptor, True)  # else a file of a process that this one starts would get its number
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))


def _discard_output() -> None:
    """Let what is left of the output go nowhere: the interpreter's end would print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_problem() -> str:
    """Return why standard output takes nothing, as on a full disk; "" if it does."""
    try:
        print(end="", flush=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def reader_has_left() -> bool:
    """Whether the other end of standard output is closed; BrokenPipeError may also come from another pipe."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


if __name__ == "__main__":
    sys.exit(main())

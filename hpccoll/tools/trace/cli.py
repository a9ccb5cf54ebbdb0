# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll trace`."""

import argparse
import sys
import textwrap
from pathlib import Path

from hpccoll.tools.trace import explain, gather, recording
from hpccoll.tools.trace.recording import TraceError

__all__ = ["add_parser", "show"]

WIDTH = 116


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll trace`."""
    parser = commands.add_parser("trace", help="what the ranks of a job did last: who diverged, who waits for whom")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    command = actions.add_parser("explain", help="say it in sentences, from the files that the ranks have written")
    command.add_argument("folder", type=Path, metavar="DIR", help="the folder that the job has named on stderr")
    command.set_defaults(main=main_explain)
    other = actions.add_parser(
        "collect", help="write the traces of this host's ranks of a job that runs, and do not explain them"
    )
    other.add_argument("job", metavar="JOB", help="the process number of `hpccoll run`, or in a Slurm job its number")
    other.set_defaults(main=main_collect)


def main_explain(arguments: argparse.Namespace) -> int:
    """Explain a folder.

    :returns: the exit status: 0, or 2 if there is nothing to read
    """
    try:
        show(arguments.folder)
    except BrokenPipeError:  # as of `| head`: the end of all commands is the same
        raise
    except (TraceError, OSError) as error:
        print(f"hpccoll trace: {error}", file=sys.stderr)
        return 2
    return 0


def main_collect(arguments: argparse.Namespace) -> int:
    """Collect the traces of this host.

    :returns: the exit status
    """
    try:
        pids = gather.processes_of(arguments.job)
        print(f"folder {gather.collect(pids, f'job {arguments.job}', shared=True)}")
    except (TraceError, OSError) as error:
        print(f"hpccoll trace: {error}", file=sys.stderr)
        return 2
    return 0


def show(folder: Path) -> None:
    """Print the explanation of the files of a folder.

    :raises TraceError: there is nothing to read
    """
    left_out: list[str] = []
    worlds = recording.read_folder(folder, left_out)
    for problem in left_out:
        print(f"hpccoll trace: {problem}: it is left out", file=sys.stderr, flush=True)
    for world, recordings in worlds.items():
        first = recordings[0]
        print(f"World {world[:8]} of {first.size} ranks, {len(recordings)} of them recorded:")
        for paragraph in explain.explain(recordings):
            for line in paragraph.splitlines():
                inner = "    " if line.startswith("  ") else "  "
                print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent=inner))
            print()

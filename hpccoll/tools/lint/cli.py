# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll lint`: prints the problems of job scripts as text or JSON."""

import argparse
import dataclasses
import json
import sys

from hpccoll.tools import written
from hpccoll.tools.lint.rules import check


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll lint`."""
    parser = commands.add_parser("lint", help="what will go wrong with a job script for Slurm or LSF")
    parser.add_argument("scripts", nargs="+", metavar="job.sh", help="`-` reads from standard input")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(main=main, further=("scripts", str))


def main(arguments: argparse.Namespace) -> int:
    """Print the problems of each script.

    :returns: the exit status: 0, 1 if a problem is an error, 2 if a script cannot be read
    """
    diagnostics, unread = [], False
    for name in arguments.scripts:
        try:
            text = written.read(name)
        except written.WrittenError as error:
            print(f"hpccoll lint: {error}", file=sys.stderr)
            unread = True
            continue
        diagnostics += [(name, diagnostic) for diagnostic in check(text)]
    if arguments.json:
        print(json.dumps([{"script": name, **dataclasses.asdict(f)} for name, f in diagnostics], indent=2))
    else:
        for name, f in diagnostics:
            print(f"{name}:{f.line}: {f.severity}: {f.problem}: {f.remedy} [{f.rule}]")
    return 2 if unread else int(any(diagnostic.severity == "error" for _, diagnostic in diagnostics))

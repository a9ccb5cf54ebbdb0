# SPDX-License-Identifier: Apache-2.0
"""`hpccoll lint`: job scripts -> findings, as text or JSON; exit status 1 if one is an error."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from hpccoll.tools.lint.rules import check


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll lint`."""
    parser = commands.add_parser("lint", help="what will go wrong with a job script for Slurm or LSF")
    parser.add_argument("scripts", nargs="+", metavar="job.sh", help="`-` reads from standard input")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 if there is an error among them, 2 if a script cannot be read."""
    findings = []
    for name in arguments.scripts:
        try:
            script = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            text = script.decode()  # with the line ends that it has
        except (OSError, UnicodeDecodeError) as error:
            print(f"hpccoll lint: {name}: {error}", file=sys.stderr)
            return 2
        findings += [(name, finding) for finding in check(text)]
    if arguments.json:
        print(json.dumps([{"script": name, **dataclasses.asdict(f)} for name, f in findings], indent=2))
    else:
        for name, f in findings:
            print(f"{name}:{f.line}: {f.severity}: {f.problem}: {f.remedy} [{f.rule}]")
    return int(any(finding.severity == "error" for _, finding in findings))

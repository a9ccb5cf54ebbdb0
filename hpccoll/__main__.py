# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll` (also `python -m hpccoll`): one room a subcommand."""

import argparse
import sys

from hpccoll import info
from hpccoll.doctor import command as doctor
from hpccoll.launch import cli as run
from hpccoll.lint import cli as lint
from hpccoll.submit import cli as submit


def main() -> int:
    """Hand the arguments to the subcommand; its exit status."""
    parser = argparse.ArgumentParser(
        prog="hpccoll", description="Collective operations for the ranks of a job."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run.add_parser(commands)
    submit.add_parser(commands)
    lint.add_parser(commands)
    info.add_parser(commands)
    doctor.add_parser(commands)
    arguments = parser.parse_args()
    status: int = arguments.main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())

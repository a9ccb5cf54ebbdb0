# SPDX-License-Identifier: Apache-2.0
"""Options of other launchers that users type by habit: `hpccoll run` refuses each and names its own."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

LAUNCHERS_OWN = "an option of mpirun: --launcher-options='{} ...'"
HABITS = {
    "--bind-to -bind-to --map-by -map-by --rank-by -rank-by": (
        "each rank is bound to its share of the cores; for another binding give mpirun's option in its own language, "
        "as --launcher-options='{} ...'"
    ),
    "--mca -mca --prtemca": "an option of mpirun: --launcher-options='{} NAME VALUE', or -x OMPI_MCA_NAME=VALUE",
    "--report-bindings -report-bindings --display --display-map --tag-output -tag-output -prepend-rank": LAUNCHERS_OWN,
    "--prefix -prefix --wdir -wdir -iface --hwthread-cpus --use-hwthread-cpus -l --enable-recovery": LAUNCHERS_OWN,
    "--oversubscribe -oversubscribe --allow-run-as-root": "leave it out: it is given to mpirun where it is needed",
    "-host --host -hosts": "give -H h1:2,h2:2",
    "-hostfile -machinefile --machinefile -f": "give --hostfile FILE",
    "-env -genv --env": "give -x NAME=VALUE",
    "-npernode --npernode -N -ppn --ppn -perhost --ntasks-per-node --nproc-per-node --nproc_per_node --nnodes": (
        "-np is the number of all ranks, and -H h1:2,h2:2 says how many each host takes"
    ),
    "--num-proc --np --ntasks -c --n": "give -np N",
    "--output-filename -outfile-pattern": "give --output DIR",
    "--ssh-port --ssh-identity-file --network-interface --network-interfaces --tcp --gloo --mpi --jsrun --verbose": (
        "a flag of horovodrun, which `hpccoll horovodrun` takes"
    ),
    "--fusion-threshold-mb --cycle-time-ms --cache-capacity --timeline-filename --autotune --log-level --binding-args "
    "--mpi-args --start-timeout --check-build": "a flag of horovodrun, which `hpccoll horovodrun` takes",
}
"""Options, separated by blanks, and what to do; {}: the option as it was typed."""
MARK = "--habit:"
"""Stands before an option of one dash while argparse parses: it would read -m, Python's, as the beginning of -mca."""


class Refusal(argparse.Action):
    """Ends the command with what to type in place of the option."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        """Say it, and exit with status 2."""
        typed = _typed(rest[2])
        parser.error(f"{typed}: {self.const.format(typed)}")


def refuse(parser: argparse.ArgumentParser) -> None:
    """Let a parser refuse the options of other launchers, which its help does not show.

    :param parser: its argument `command` has the rest of the line, which is left as it is
    """
    marked = {name: name if name.startswith("--") else MARK + name for names in HABITS for name in names.split()}
    for names, remedy in HABITS.items():
        options = [marked[name] for name in names.split()]
        parser.add_argument(*options, action=Refusal, nargs="?", const=remedy, dest="habit", help=argparse.SUPPRESS)
    parse: Callable[..., tuple[argparse.Namespace, list[str]]] = parser.parse_known_args

    def parse_marked(words: Sequence[str] | None = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        given = [word.partition("=") for word in (sys.argv[1:] if words is None else words)]
        found, rest = parse([marked.get(name, name) + equals + value for name, equals, value in given], namespace)
        found.command = [_typed(word) for word in found.command]
        return found, [_typed(word) for word in rest]

    its: Any = parser  # mypy refuses the assignment to a method
    its.parse_known_args = parse_marked


def _typed(word: str) -> str:
    return word.removeprefix(MARK)

# SPDX-License-Identifier: Apache-2.0
"""Options of other launchers that users type by habit: `hpccoll run` refuses each and names its own."""

import argparse
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


class Refusal(argparse.Action):
    """Ends the command with what to type in place of the option."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        """Say it, and exit with status 2."""
        _, _, typed = rest
        parser.error(f"{typed}: {self.const.format(typed)}")


def refuse(parser: argparse.ArgumentParser) -> None:
    """Let a parser refuse the options of other launchers, which its help does not show."""
    for names, remedy in HABITS.items():
        parser.add_argument(
            *names.split(), action=Refusal, nargs="?", const=remedy, dest="habit", help=argparse.SUPPRESS
        )
    options: Any = parser
    of_a_prefix = options._get_option_tuples  # noqa: SLF001

    def none_of_ours(word: str) -> list[Any]:
        """Options that begin like a word. argparse looks for them behind the program, too: -m is Python's, not -mca."""
        return [found for found in of_a_prefix(word) if not isinstance(found[0], Refusal)]

    options._get_option_tuples = none_of_ours  # noqa: SLF001

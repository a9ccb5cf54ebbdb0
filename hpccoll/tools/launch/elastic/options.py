# SPDX-License-Identifier: Apache-2.0
"""The options of `hpccoll run` for elastic jobs. `hpccoll run` imports the rest only for such a job."""

import argparse

EXCLUDE = "--exclude-host-on-failure"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of an elastic job."""
    group = parser.add_argument_group("elastic jobs", "each of the first three makes the job elastic, without MPI")
    group.add_argument("--min-np", type=int, metavar="N", help="go on while there are N ranks (default: -np)")
    group.add_argument("--max-np", type=int, metavar="N", help="take in ranks up to N (default: what the hosts take)")
    group.add_argument("--host-discovery-script", metavar="FILE", help="prints `host` or `host:slots` per line")
    group.add_argument("--slots-per-host", type=int, default=1, metavar="N", help="of hosts without a number")
    group.add_argument("--elastic-timeout", type=float, default=600.0, metavar="SECONDS", help="to wait for --min-np")
    group.add_argument("--reset-limit", type=int, metavar="N", help="how often the ranks may change")
    group.add_argument(
        "--blacklist-cooldown-range", type=float, nargs=2, metavar=("S", "S"), help="seconds that a host is excluded"
    )
    group.add_argument(
        "--host-failures", type=int, default=3, metavar="N", help="in ten minutes exclude a host (default: 3)"
    )
    group.add_argument(
        EXCLUDE, action="store_true", help="one failure excludes a host and ends its other ranks, as in Horovod"
    )
    group.add_argument(
        "--straggler-timeout", type=float, default=60.0, metavar="SECONDS", help="to wait for a rank after a loss"
    )


def is_asked_for(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments make the job elastic."""
    return bool(arguments.min_np or arguments.max_np or arguments.host_discovery_script)

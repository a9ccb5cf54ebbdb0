# SPDX-License-Identifier: Apache-2.0
"""The options of `hpccoll run` for elastic jobs. `hpccoll run` imports the rest only for such a job."""

import argparse

from hpccoll.tools.launch.job import LaunchError

LEAST = {
    "min_np": 1, "max_np": 1, "slots_per_host": 1, "host_failures": 1, "reset_limit": 0, "elastic_timeout": 0,
    "straggler_timeout": 0,
}  # fmt: skip
"""The least value of each number."""
DEFAULTS = {
    "slots_per_host": 1, "elastic_timeout": 600.0, "reset_limit": None, "blacklist_cooldown_range": None,
    "host_failures": 3, "exclude_host_on_failure": False, "straggler_timeout": 60.0,
}  # fmt: skip
"""The options that do not make a job elastic, and their values where they are not given."""
EXCLUDE = "--exclude-host-on-failure"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of an elastic job."""
    group = parser.add_argument_group("elastic jobs", "each of the first three makes the job elastic, without MPI")
    group.add_argument("--min-np", type=int, metavar="N", help="go on while there are N ranks (default: -np)")
    group.add_argument("--max-np", type=int, metavar="N", help="take in ranks up to N (default: what the hosts take)")
    group.add_argument("--host-discovery-script", metavar="FILE", help="prints `host` or `host:slots` per line")
    group.add_argument("--slots-per-host", type=int, metavar="N", help="of hosts without a number")
    group.add_argument("--elastic-timeout", type=float, metavar="SECONDS", help="to wait for --min-np")
    group.add_argument("--reset-limit", type=int, metavar="N", help="how often the ranks may change")
    group.add_argument(
        "--blacklist-cooldown-range", type=float, nargs=2, metavar=("S", "S"), help="seconds that a host is excluded"
    )
    group.add_argument("--host-failures", type=int, metavar="N", help="in ten minutes exclude a host (default: 3)")
    group.add_argument(
        EXCLUDE, action="store_true", help="one failure excludes a host and ends its other ranks, as in Horovod"
    )
    group.add_argument("--straggler-timeout", type=float, metavar="SECONDS", help="to wait for a rank after a loss")
    parser.set_defaults(**DEFAULTS)


def is_asked_for(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments make the job elastic."""
    return any(given is not None for given in (arguments.min_np, arguments.max_np, arguments.host_discovery_script))


def without_effect(arguments: argparse.Namespace) -> list[str]:
    """Return the options that are given to a job that is not elastic."""
    return [_spelled(name) for name, value in DEFAULTS.items() if getattr(arguments, name) != value]


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check(arguments: argparse.Namespace) -> None:
    """Check the numbers, and that an elastic job is not to be shown: it has no command that could be printed.

    :raises LaunchError: an argument makes no sense
    """
    if arguments.show and is_asked_for(arguments):
        raise LaunchError("--show: an elastic job is not one command, as processes are started while it runs")
    for option, least in LEAST.items():
        value = getattr(arguments, option)
        if value is not None and not value >= least:
            raise LaunchError(f"{_spelled(option)} {value:g}: {least} or more")
    low, high = arguments.blacklist_cooldown_range or (0.0, 0.0)
    if not 0 <= low <= high:
        raise LaunchError(f"--blacklist-cooldown-range {low:g} {high:g}: two times, the shorter one first")

# SPDX-License-Identifier: Apache-2.0
"""Runs random programs through all front ends for a given time. It shrinks wrong programs, then prints them.

python tests/differential/soak.py --seconds 3600 --ranks 4 --nodes 2 --front-ends numpy,c,torch,tensorflow,jax
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyFailure

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential import checks, drivers
from differential.job import Job
from differential.operations import OPERATIONS
from differential.programs import BYTES, DTYPES, GROUPED, Abilities


def main() -> int:
    """Run; return 1 if a program was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--front-ends", default="numpy,c,cpp,fortran,languages,torch,tensorflow,jax")
    parser.add_argument("--modes", default="", help="only modes whose names contain this")
    parser.add_argument("--programs", type=int, default=20, help="programs of a mode before the next one's turn")
    parser.add_argument("--plant", default="", help="a fault of plants.py")
    arguments = parser.parse_args()
    many = settings(
        max_examples=arguments.programs, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    front_ends = arguments.front_ends.split(",")
    for front_end in [front_end for front_end in front_ends if drivers.problem(front_end)]:
        print(drivers.problem(front_end))
        front_ends.remove(front_end)
    passed, found = Counter[str](), Counter[str]()
    with Job(arguments.ranks, arguments.nodes, front_ends, arguments.plant) as job:
        job.start()
        began = time.monotonic()
        modes = [mode for mode in job.modes if arguments.modes in mode]
        for mode, check in cycle(product(modes, checks.ALL)):
            if time.monotonic() > began + arguments.seconds:
                break
            job.when_wrong = tells_once(f"{check.__name__}, after {time.monotonic() - began:.0f} s, not shrunk")
            try:
                check(job, mode, many)
                passed[mode] += 1
            except (AssertionError, FlakyFailure) as error:  # flaky: right when it was run again
                found[mode] += 1
                print(f"\n##### {check.__name__}, after {time.monotonic() - began:.0f} s:\n{error}", flush=True)
    for mode in passed | found:
        print(f"{mode}: {passed[mode]} rounds of {arguments.programs} programs right, {found[mode]} wrong")
        print(f"    never has {', '.join(absent(job.modes[mode]))}")
    print(f"{job.programs} programs in {time.monotonic() - began:.0f} s")
    return int(bool(found))


def tells_once(title: str) -> Callable[[str], None]:
    """Print the first wrong program at once, because shrinking it may take longer than the soak."""
    told: list[str] = []

    def tell(text: str) -> None:
        if not told:
            print(f"\n##### {title}:\n{text}", flush=True)
        told.append(text)

    return tell


def absent(can: Abilities) -> list[str]:
    """Return the features of programs that a mode lacks."""
    kinds = {"operations": OPERATIONS, "dtypes": (*DTYPES, *BYTES), "grouped": GROUPED}
    named = {"grouped": "groups of "}
    missing = [
        named.get(kind, "") + each for kind, every in kinds.items() for each in every if each not in getattr(can, kind)
    ]
    return missing + [what for what in ("sets", "empty", "narrow") if not getattr(can, what)] or [
        "nothing less than all"
    ]


if __name__ == "__main__":
    sys.exit(main())

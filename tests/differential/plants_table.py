# SPDX-License-Identifier: Apache-2.0
"""Prints a table of the planted faults: after how many programs and seconds each is found, and how.

python tests/differential/plants_table.py
"""

import argparse
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyFailure

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential.job import Job
from differential.plants import PLANTS

MANY = settings(
    max_examples=400, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def row(name: str) -> str:
    """Run programs until one finds the fault."""
    planted = PLANTS[name]
    with Job(2, 1, [planted.front_end], plant=name) as job:
        job.start()
        began = time.monotonic()
        try:
            for mode in [mode for mode in job.modes if planted.modes in mode]:
                planted.check(job, mode, MANY)
        except (AssertionError, FlakyFailure) as error:  # flaky: right when it was run again
            how = "a hang" if "did not answer" in str(error) else "an error" if "Error" in str(error) else "a value"
            assert job.first
            return f"| {name} | {planted.modes} | {job.first[0]} | {job.first[1] - began:.1f} | {how} |"
    return f"| {name} | {planted.modes} | not found in {job.programs} | | |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PLANTS), help="which faults")
    print("| fault | modes | programs | seconds | found by |\n|---|---|---|---|---|")
    for name in parser.parse_args().names:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()

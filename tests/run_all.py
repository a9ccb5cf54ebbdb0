# SPDX-License-Identifier: Apache-2.0
"""Runs all tests: those without a launcher, then the parallel ones under the real one at 1 to 4 ranks.

Each run prints pytest's own report as it goes; the last lines are the closing line of each run and their sum.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

TIMEOUT = 900
"""Seconds for one run: a hang is a failure, not a night."""
WORKERS = ("-n", "4", "--dist", "loadscope", "--no-loadscope-reorder")
"""For the tests without a launcher. They start jobs and wait for them half of the time; one worker mostly waits, for
Slurm and for hosts (scope_of in conftest.py)."""


LAYOUTS = ((1, 1), (3, 2))
"""Ranks and nodes: a single rank, and uneven nodes, one of them with several ranks."""
SLOW_LAYOUTS = ((2, 1), (4, 2))
"""One node, and even nodes: threads (tests/api) and other jobs have them in `make test`."""


def runs(extra: list[str], parallel_only: bool, slow: bool) -> dict[str, list[str]]:
    """What to execute, by name. Ranks share this machine as one node, as two, and as uneven ones.

    -P: what is installed is tested, not what happens to lie in the current folder.
    """
    pytest = ["-P", "-m", "pytest", "--color=no", *extra]
    launch = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", str(TIMEOUT)]
    parallel = {
        f"{ranks} ranks, {nodes} nodes": [
            *launch, "-np", str(ranks), "--nodes", str(nodes), "python", *pytest, "-pno:cacheprovider", "--only-mpi",
        ]
        for ranks, nodes in (*LAYOUTS, *(SLOW_LAYOUTS if slow or parallel_only else ()))
    }  # fmt: skip
    return parallel if parallel_only else {"no launcher": [sys.executable, *pytest, *WORKERS], **parallel}


def execute(command: list[str]) -> tuple[int, str]:
    """Run and print; the exit status and pytest's closing line."""
    closing = "no summary"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            if found := re.match(r"=* ?((?:no tests ran|\d+ \w+).* in [\d.]+s)", line):
                closing = found[1]
    return run.returncode, closing


def main() -> int:
    """Run everything; 1 if a run failed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as sessions:
        # For tests that kill an mpirun of their own; openmpi.own_session_folder says what its files do to later ones.
        os.environ.setdefault("PRTE_MCA_prte_local_tmpdir_base", sessions)
        return run_all()


def run_all() -> int:
    """Run everything; 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", action="store_true", help="only tests under the launcher")
    parser.add_argument("--slow", action="store_true", help="also tests marked slow")
    arguments, extra = parser.parse_known_args()
    if not arguments.slow and "-m" not in extra:
        extra += ["-m", "not slow"]
    began, closings, failed, total = time.monotonic(), [], False, Counter[str]()
    for name, command in runs(extra, arguments.parallel, arguments.slow).items():
        print(f"\n##### {name}", flush=True)
        status, closing = execute(command)
        failed |= status != 0
        closings.append(f"{name:>20}: {closing}" + (f"  (exit status {status})" if status else ""))
        total.update({word: int(number) for number, word in re.findall(r"(\d+) (\w+)", closing.split(" in ")[0])})
    print("\n##### summary", *closings, sep="\n")
    counts = ", ".join(
        f"{total[word]} {word}" for word in ("failed", "passed", "skipped", "error", "errors") if total[word]
    )
    print(f"===== {counts or 'no tests ran'} in {time.monotonic() - began:.2f}s =====", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

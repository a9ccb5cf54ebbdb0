# SPDX-License-Identifier: Apache-2.0
"""Summit and Frontier, simulated: the real engines and the real hierarchy over SimGrid's networks.

    python benchmarks/simulator page              # all that docs/scaling-to-summit.md shows
    python benchmarks/simulator page --again 256  # the same; runs of up to 256 nodes are made anew
    python benchmarks/simulator page --small      # changes nothing: are the results and the tables up to date?
    python benchmarks/simulator tables            # every run

`page` builds the simulator (it needs g++ and libsimgrid-dev), makes the runs that the results lack, draws the pictures
of the page and writes its tables. It can be interrupted. `--small` repeats the runs that take little time, and compares
them with the results: a simulation gives the same time whenever it is made.
"""

import argparse
import datetime
import json
import math
import subprocess
import sys
import time
from pathlib import Path

from plan import Run, is_small, runs
from study import draw, tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "simulator.jsonl"


def build(out: Path) -> Path:
    """Build the simulator."""
    subprocess.run(["make", "-s", "-j2", "-C", HERE, f"OUT={out.resolve()}"], check=True)
    return out / "simulate"


def simulate(program: Path, run: Run) -> Run:
    """Simulate once.

    :returns: the settings and the result
    """
    began = time.monotonic()
    words = [f"{name}={value}" for name, value in run.items()]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    took = {"took": round(time.monotonic() - began, 1), "date": datetime.date.today().isoformat()}
    found: Run = json.loads(done.stdout)
    return {"asked": run} | took | found


def read(file: Path) -> list[Run]:
    """Read the existing results."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def forget(options: argparse.Namespace) -> None:
    """Remove the results that are to be made anew."""
    kept = [run for run in read(options.results) if run["nodes"] > options.again]
    options.results.write_text("".join(json.dumps(run) + "\n" for run in kept))


def run_missing(options: argparse.Namespace) -> None:
    """Make the runs that the results lack."""
    program = build(options.build)
    there = [run["asked"] for run in read(options.results)]
    for run in runs():
        if run in there:
            continue
        result = simulate(program, run)
        with options.results.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(f"{result['took']:6.1f} s  {run}: {1e6 * result['seconds']:.1f} us", flush=True)


def differing(options: argparse.Namespace) -> list[str]:
    """Repeat the small runs; describe those whose result is another one."""
    program = build(options.build)
    recorded, found = [run for run in read(options.results) if is_small(run["asked"])], []
    for run in recorded:
        now = simulate(program, run["asked"])
        same_time = math.isclose(now["seconds"], run["seconds"], rel_tol=1e-4)  # compilers may round differently
        if now["messages"] != run["messages"] or not same_time:
            found.append(f"{run['asked']}: {1e6 * now['seconds']:.3f} us, recorded {1e6 * run['seconds']:.3f} us")
    print(f"{len(recorded)} runs repeated, {len(found)} differ", *found, sep="\n", flush=True)
    return found


def write_tables(*how: str) -> int:
    """Write the tables of the docs, or check them."""
    return subprocess.run([sys.executable, ROOT / "docs" / "generate.py", *how], check=False).returncode


def page(options: argparse.Namespace) -> int:
    """Make all that the page shows; with --small, check it."""
    if options.small:
        return int(bool(differing(options))) | write_tables("--check")
    forget(options)
    run_missing(options)
    draw(read(options.results), options.pictures)
    return write_tables()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["page", "tables", "draw"])
    parser.add_argument("--small", action="store_true", help="page: repeat small runs, and check tables")
    parser.add_argument("--again", type=int, default=0, metavar="NODES", help="page: make runs of so few nodes anew")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--pictures", type=Path, default=Path("build/pictures"), help="where the pictures go")
    parser.add_argument("--build", type=Path, default=Path("build/simulator"))
    options = parser.parse_args()
    if options.action == "page":
        return page(options)
    if options.action == "tables":
        print(tables(read(options.results)))
    else:
        draw(read(options.results), options.pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""How fast is the node's allreduce, below the API, beside memcpy of the same array by all ranks at once?

It builds and runs node_stage.c for 2 and 4 ranks. The floor is memcpy: inside a node every rank's array must be read
once and written once.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import native
import results

SOURCES = "transport/shm/*.c transport/kernels/*.c core/reserve.c core/status.c"
KINDS = ("float32", "float16", "bfloat16")


def measure(program: Path, ranks: int, dtype: str, most: int) -> list[dict[str, Any]]:
    command = [str(program), str(ranks), dtype, str(most)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def report(row: dict[str, Any]) -> None:
    low, high = row["us_quartiles"]
    ours = f"{row['us']:10.2f} us ({low:.2f} .. {high:.2f})"
    floor = f"memcpy {row['memcpy_us']:10.2f}   x{row['ratio']:.2f}"
    print(f"{row['ranks']:2} ranks {row['dtype']:8} {row['bytes']:9} bytes {ours}   {floor}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--most", type=int, default=64 << 20, help="bytes of the largest array")
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--out", type=results.file, help="file for the results, as JSON Lines")
    arguments = parser.parse_args()
    program = native.build(arguments.compiler, "node_stage", SOURCES)
    rows = []
    for ranks in arguments.ranks:
        for dtype in KINDS:
            for row in measure(program, ranks, dtype, arguments.most):
                rows.append(row)
                report(row)
    if arguments.out:
        results.write(arguments.out, results.facts("node_stage"), rows)


if __name__ == "__main__":
    main()

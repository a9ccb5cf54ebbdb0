# SPDX-License-Identifier: Apache-2.0
"""Summit and Frontier, simulated: the real engines and the real hierarchy over SimGrid's networks.

    python benchmarks/simulator run benchmarks/results/simulator.jsonl [--largest 4608]
    python benchmarks/simulator tables benchmarks/results/simulator.jsonl
    python benchmarks/simulator draw benchmarks/results/simulator.jsonl build/pictures

`run` builds the simulator (it needs g++ and libsimgrid-dev), and leaves out runs that the file already has, so it can
be interrupted. docs/scaling-to-summit.md describes what is simulated, and what is not.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from study import draw, tables

from hpccoll.tools.model import chunks

HERE = Path(__file__).resolve().parent
BATCH = 16 << 20
Run = dict[str, Any]


def build(out: Path) -> Path:
    """Build the simulator."""
    subprocess.run(["make", "-s", "-j2", "-C", HERE, f"OUT={out.resolve()}"], check=True)
    return out / "simulate"


def allreduce(nodes: int, nbytes: int = BATCH, machine: str = "summit", **more: Any) -> Run:
    """Return the run of one batch, cut as a node of that machine cuts it."""
    per_node = {"summit": 6, "frontier": 8}[machine]
    dtype = more.get("dtype", "float32")
    between = {"fp16": "float16"}.get(more.get("wire", ""), dtype)
    cut = chunks.cut(1 << 30, dtype, between, per_node, more.get("rails", 0), nodes=nodes)
    found = {"what": "allreduce", "machine": machine, "nodes": nodes, "bytes": nbytes, "rails": cut.rails,
             "shard": cut.shard, "depth": cut.depth}  # fmt: skip
    return found | more


def agreement(nodes: int, **more: Any) -> Run:
    """Return the run in which all ranks agree on ResNet-50's gradients."""
    return {"what": "agreement", "machine": "summit", "nodes": nodes} | more


def runs(largest: int) -> list[Run]:
    """Return all runs, cheap ones first."""
    found = [agreement(n) for n in (1, 2, 4, 16, 64, 256, 1024)]
    found += [agreement(1024, fanout=k) for k in (2, 4, 8, 32, 64)]
    found += [agreement(256, skew=0.001), agreement(256, late=0.01), agreement(256, noise=0.5)]
    found += [agreement(256, slow_node=40, slowness=10)]
    chunk = chunks.cut(1 << 30, "float32", "float32", 6).chunk * 4
    few = 6 * chunk
    for n in (2, 4, 8, 16, 32, 64):
        found += [allreduce(n), allreduce(n, chunk)]
        found += [allreduce(n, algorithm="ring"), allreduce(n, machine="frontier")]
    for more in ({"rails": 1}, {"rails": 2}, {"rails": 3}, {"depth": 1}, {"depth": 2}, {"depth": 4}, {"depth": 16},
                 {"dtype": "float16", "nbytes": BATCH // 2}, {"noise": 0.2}, {"slow_node": 5, "slowness": 2},
                 {"slow_link": 5, "slowness": 4}):  # fmt: skip
        found.append(allreduce(64, **more))
    found += [allreduce(n, few) for n in (64, 128, 256)] + [allreduce(n, chunk) for n in (128, 256, 512)]
    found += [allreduce(n, few) for n in (72, 96)] + [allreduce(n, chunk) for n in (72, 96)]
    found += [agreement(n, fanout=4) for n in (16, 64, 256)]
    found += [agreement(n, fanout=k, hop=5e-6) for n in (16, 1024) for k in (4, 8, 16)]
    found += [
        agreement(4608),
        agreement(4608, fanout=2),
        agreement(4608, fanout=4),
        agreement(4608, fanout=8),
        agreement(4608, late=0.01),
    ]
    found += [allreduce(n, wire="fp16") for n in (8, 16, 32, 64)] + [allreduce(72)]
    found += [allreduce(n, size) for n in (512, 1024) for size in (chunk, few)] + [allreduce(n) for n in (128, 256)]
    found += [allreduce(4608, size) for size in (chunk, 3 * chunk)]  # 3 MiB take too long
    found += [allreduce(n, chunk, unit=64) for n in (1024, 4608)] + [allreduce(4096, chunk)]
    found.append(allreduce(4608, 3 * chunk, unit=64))
    found += [allreduce(1024, few, depth=16), allreduce(1024, few, unit=64), allreduce(1024, few, unit=64, depth=16)]
    found += [allreduce(1024, few // 2, dtype="float16"), allreduce(1024, few // 2, unit=64)]
    found += [allreduce(n, few, unit=64) for n in (64, 256)]
    found += [allreduce(1024, few, slow_link=40, slowness=4), allreduce(1024, few, slow_node=40, slowness=2)]
    found += [allreduce(4608, 3 * chunk // 2, dtype="float16")]
    found += [allreduce(n, few, machine="frontier") for n in (128, 512)]
    found += in_stages(chunk, few) + flat()
    return [run for run in found if run["nodes"] <= largest]


def in_stages(chunk: int, few: int) -> list[Run]:
    """Return runs with other numbers of nodes, FP16 between nodes, and other stages than those that are chosen."""
    found = []
    for nodes, size in ((64, BATCH), (72, BATCH), (1000, chunk), (1024, few), (4096, chunk), (4608, chunk)):
        found += [allreduce(nodes, size, wire=wire) for wire in ("none", "fp16")]
    for nodes, size, stages in ((64, BATCH, "2,2,2,2,2,2"), (64, BATCH, "8,8"), (72, BATCH, "3,3,2,2,2"),
                                (1024, chunk, "32,32"), (4608, chunk, "18,16,16")):  # fmt: skip
        found += [allreduce(nodes, size, stages=stages, wire=wire) for wire in ("none", "fp16")]
    return found


def flat() -> list[Run]:
    """Return runs without nodes: each rank has a sixth of its node's link, and all ranks take part in the algorithm."""
    cut = chunks.cut(1 << 30, "float32", "float32", 1)
    alone = {"per_node": 1, "injection": 23e9 / 6, "port": 23e9 / 6, "rails": 1, "shard": cut.shard, "depth": cut.depth}
    return [allreduce(6 * 64, size, **alone) for size in (3 << 20, BATCH)]


def simulate(program: Path, run: Run) -> Run:
    """Simulate once.

    :returns: the settings and the result
    """
    began = time.monotonic()
    words = [f"{name}={value}" for name, value in run.items()]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    return {"asked": run, "took": round(time.monotonic() - began, 1)} | json.loads(done.stdout)


def read(file: Path) -> list[Run]:
    """Read the existing results."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run_all(options: argparse.Namespace) -> None:
    program = build(options.build)
    there = [run["asked"] for run in read(options.file)]
    for run in runs(options.largest):
        if run in there:
            continue
        result = simulate(program, run)
        with options.file.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(f"{result['took']:6.1f} s  {run}: {1e6 * result['seconds']:.1f} us", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "tables", "draw"])
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", help="draw: where the figures go")
    parser.add_argument("--largest", type=int, default=4608, help="nodes")
    parser.add_argument("--build", type=Path, default=Path("build/simulator"))
    options = parser.parse_args()
    if options.action == "run":
        run_all(options)
    elif options.action == "tables":
        print(tables(read(options.file)))
    else:
        draw(read(options.file), options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The table of benchmarks/README.md, from the files in results/: what was to be reached, and what was.

python benchmarks/summary.py            rewrite the table
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SECTION = re.compile(r"(<!-- generated: summary -->\n).*?(<!-- end -->)", re.DOTALL)
MPIS = ("openmpi", "mpich", "intelmpi")


@dataclass(frozen=True)
class Row:
    file: str  # in results/
    label: str
    way: str  # hpccoll's
    goal: str
    gloo: str = ""  # Gloo's way, where it has another name
    beyond: str = ""  # the way whose time, each library's own, is taken off


def rows() -> list[Row]:
    large = "1.2 x memcpy, 0.5 x the best MPI"
    sizes = ("64 KiB", "1 MiB", "8 MiB", "32 MiB", "64 MiB")
    table = [Row("small-2-ranks", label, "named", "10 us") for label in ("4 B", "1 KiB")]
    goals = dict.fromkeys(sizes, "the best MPI + 10 us") | dict.fromkeys(sizes[-2:], large)
    table += [Row("allreduce-2-ranks", size, "float32", goals[size]) for size in sizes]
    for way in ("float16", "bfloat16"):
        table.append(Row("allreduce-2-ranks", "64 MiB as halves", way, "0.6 x fp32"))
    goals |= dict.fromkeys(sizes[-2:], "0.6 x the best MPI")
    table += [Row("allreduce-4-ranks", size, "float32", goals[size]) for size in sizes]
    table += [
        Row("many_tensors-2-ranks", "64 x 4 KiB", "enqueued, then awaited", "200 us"),
        Row("many_tensors-2-ranks", "64 x 4 KiB", "one group", "120 us", "25 MB buckets"),
    ]
    for ranks, share in ((2, "0.8"), (4, "0.6")):
        file = f"resnet50-{ranks}-ranks"
        goal = f"{share} x the best MPI, 0.25 x Gloo and Horovod"
        table.append(Row(file, "161 gradients", "enqueued, then awaited", goal, "25 MB buckets"))
        table.append(Row(file, "161 gradients", "enqueued, FP16", "our fp32", "25 MB buckets, FP16"))
    for hosts in (2, 4):
        file = f"allreduce-{hosts}-hosts"
        table += [
            Row(file, size, "float32", "the best MPI") for size in ("64 KiB", "256 KiB", "1 MiB", "8 MiB")
        ]
        table.append(Row(file, "64 MiB", "float32", "1.18 x the floor, the best MPI"))
        table.append(Row(file, "64 MiB", "float32, FP16 on the way", "1.18 x the floor, the best MPI"))
    for question, label, goal, beyond in (
        ("torch_optimizer", "161 gradients", "0.4 x Gloo and Horovod", ""),
        ("torch_ddp", "161 gradients, DDP", "0.5 x Gloo", "nothing sent"),
    ):
        for place in ("2-ranks", "2-ranks-2-nodes", "4-ranks", "4-ranks-2-nodes"):
            file = f"{question}-{place}"
            table += [Row(file, label, way, goal, beyond=beyond) for way in ("fp32", "fp16")]
    return table


def measured(row: Row) -> str | None:
    """One line of the table, or None where nothing was measured."""
    path = RESULTS / f"{row.file}.json"
    if not path.exists():
        return None
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    group = [less(r, results, row.beyond) for r in results if r["label"] == row.label]
    ours = fastest(group, ("hpccoll",), row.way)
    if ours is None:
        return None
    floor, mpi = fastest(group, ("memcpy",), row.way), fastest(group, MPIS, row.way)
    if "floor us" in ours["figures"]:
        floor = {"median": ours["figures"]["floor us"] * 1e-6}  # of the wire
    gloo, horovod = fastest(group, ("gloo",), row.gloo or row.way), fastest(group, ("horovod",), row.way)
    where = " ".join(row.file.split("-")[1:])
    cells = [
        f"{row.label}, {row.way}{f' beyond {row.beyond}' if row.beyond else ''}, {where}",
        micro(ours),
        micro(floor),
        f"{micro(mpi)} ({mpi['library']})" if mpi else "",
        micro(gloo),
        micro(horovod),
        f"{ours['median'] / floor['median']:.2f}" if floor else "",
        f"{ours['median'] / mpi['median']:.2f}" if mpi else "",
        f"{ours['median'] / gloo['median']:.2f}" if gloo else "",
        f"{ours['median'] / horovod['median']:.2f}" if horovod else "",
        row.goal,
    ]
    return f"| {' | '.join(cells)} |"


def less(result: dict[str, Any], results: list[dict[str, Any]], way: str) -> dict[str, Any]:
    """The result without the time that its library takes for `way`, if one is named."""
    same = [
        r
        for r in results
        if (r["library"], r["label"], r["way"]) == (result["library"], result["label"], way)
    ]
    return result | {"median": result["median"] - same[0]["median"]} if same else result


def fastest(results: list[dict[str, Any]], libraries: tuple[str, ...], way: str) -> dict[str, Any] | None:
    """The fastest of these libraries: of the same way, or of all where none has that way."""
    theirs = [r for r in results if r["library"] in libraries]
    same = [r for r in theirs if r["way"] == way]
    return min(same or theirs, key=lambda r: float(r["median"]), default=None)


def micro(result: dict[str, Any] | None) -> str:
    return f"{result['median'] * 1e6:,.4g}" if result else ""


def main() -> None:
    head = [
        "us",
        "hpccoll",
        "memcpy (floor)",
        "best MPI",
        "Gloo",
        "Horovod",
        "x floor",
        "x best MPI",
        "x Gloo",
        "x Horovod",
        "to reach",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [line for row in rows() if (line := measured(row))]
    page = HERE / "README.md"
    page.write_text(SECTION.sub(lambda m: f"{m[1]}{chr(10).join(lines)}\n{m[2]}", page.read_text()))


if __name__ == "__main__":
    main()

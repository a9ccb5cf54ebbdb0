# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks/README.md and of the README, from the files in results/.

python benchmarks/summary.py            rewrite the tables
"""

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import results

HERE = Path(__file__).resolve().parent
PAGES = (HERE / "README.md", HERE.parent / "README.md")
SECTION = re.compile(r"( *)<!-- generated: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
MPIS = ("openmpi", "mpich", "intelmpi")


@dataclass(frozen=True)
class Row:
    file: str  # in results/
    label: str
    variant: str  # hpccoll's
    goal: str = ""
    gloo: str = ""  # Gloo's variant, if it has another name
    beyond: str = ""  # the variant whose time is subtracted, for each library


def rows() -> list[Row]:
    large = "1.2 x memcpy, 0.5 x the best MPI"
    sizes = ("64 KiB", "1 MiB", "8 MiB", "32 MiB", "64 MiB")
    table = [Row("small-2-ranks", label, "named", "10 us") for label in ("4 B", "1 KiB")]
    goals = dict.fromkeys(sizes, "the best MPI + 10 us") | dict.fromkeys(sizes[-2:], large)
    table += [Row("allreduce-2-ranks", size, "float32", goals[size]) for size in sizes]
    for variant in ("float16", "bfloat16"):
        table.append(Row("allreduce-2-ranks", "64 MiB as halves", variant, "0.6 x fp32"))
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
    for hosts, largest in ((2, "64 MiB"), (3, "64 MiB"), (4, "64 MiB"), (6, "8 MiB"), (8, "8 MiB")):
        file = f"allreduce-{hosts}-hosts"
        smaller = [size for size in ("64 KiB", "256 KiB", "1 MiB", "8 MiB") if size != largest]
        table += [Row(file, size, "float32", "the best MPI") for size in smaller]
        table.append(Row(file, largest, "float32", "1.18 x the floor, the best MPI"))
        table.append(Row(file, largest, "float32, FP16 on the way", "1.18 x the floor, the best MPI"))
    for question, label, goal, beyond in (
        ("torch_optimizer", "161 gradients", "0.4 x Gloo and Horovod", ""),
        ("torch_ddp", "161 gradients, DDP", "0.5 x Gloo", "nothing sent"),
    ):
        for place in ("2-ranks", "2-ranks-2-nodes", "4-ranks", "4-ranks-2-nodes"):
            file = f"{question}-{place}"
            table += [Row(file, label, variant, goal, beyond=beyond) for variant in ("fp32", "fp16")]
    return table


def brief_rows() -> dict[str, Row]:
    """Return the rows that the README shows, by their labels there."""
    return {
        "64 MiB, 4 ranks of a node": Row("allreduce-4-ranks", "64 MiB", "float32"),
        "64 MiB, 4 hosts, 1 Gbit/s": Row("allreduce-4-hosts", "64 MiB", "float32"),
        "the same, FP16 between hosts": Row("allreduce-4-hosts", "64 MiB", "float32, FP16 on the way"),
        "161 gradients, one call each, 4 ranks": Row(
            "resnet50-4-ranks", "161 gradients", "enqueued, then awaited", gloo="25 MB buckets"
        ),
        "161 gradients, PyTorch's optimizer, 4 ranks": Row("torch_optimizer-4-ranks", "161 gradients", "fp32"),
        "the same, 2 nodes": Row("torch_optimizer-4-ranks-2-nodes", "161 gradients", "fp32"),
    }


@dataclass(frozen=True)
class Measured:
    """The fastest record of each kind, or None where there is none."""

    ours: results.Record
    floor: results.Record | None
    mpi: results.Record | None
    gloo: results.Record | None
    horovod: results.Record | None


def measured(row: Row) -> Measured | None:
    """Return the measurements for a row; None if hpccoll was not measured."""
    path = results.FOLDER / f"{row.file}.jsonl"
    if not path.exists():
        return None
    facts, cases = results.read(path)
    if "hosts" not in facts:  # their link decides, not the distance of the cores that they share
        cases = at_one_distance(cases)
    group = [less(case, cases, row.beyond) for case in cases if case["label"] == row.label]
    ours = fastest(group, ("hpccoll",), row.variant)
    if ours is None:
        return None
    floor = fastest(group, ("memcpy",), row.variant)
    if "floor us" in ours["figures"]:
        floor = {"median": ours["figures"]["floor us"] * 1e-6}  # of the wire
    gloo = fastest(group, ("gloo",), row.gloo or row.variant)
    return Measured(ours, floor, fastest(group, MPIS, row.variant), gloo, fastest(group, ("horovod",), row.variant))


def at_one_distance(cases: list[results.Record]) -> list[results.Record]:
    """Return the cases at the distance of the cores at which there are most repetitions of hpccoll."""
    counts: Counter[int] = Counter()
    for case in cases:
        counts[case.get("place", 0)] += case["repetitions"] * (case["library"] == "hpccoll")
    return [case for case in cases if case.get("place", 0) == counts.most_common(1)[0][0]] if counts else []


def line(row: Row) -> str | None:
    """Return one line of the table; None if nothing was measured."""
    found = measured(row)
    if found is None:
        return None
    where = " ".join(row.file.split("-")[1:])
    mpi = found.mpi
    cells = [
        f"{row.label}, {row.variant}{f' beyond {row.beyond}' if row.beyond else ''}, {where}",
        micro(found.ours),
        micro(found.floor),
        f"{micro(mpi)} ({mpi['library']})" if mpi else "",
        micro(found.gloo),
        micro(found.horovod),
        *(ratio(found.ours, other) for other in (found.floor, mpi, found.gloo, found.horovod)),
        row.goal,
    ]
    return f"| {' | '.join(cells)} |"


def less(case: results.Record, cases: list[results.Record], variant: str) -> results.Record:
    """Return the case less the time of its library for `variant`, if one is named."""
    wanted = (case["library"], case["label"], variant)
    same = [other for other in cases if (other["library"], other["label"], other["variant"]) == wanted]
    return case | {"median": case["median"] - same[0]["median"]} if same else case


def fastest(cases: list[results.Record], libraries: tuple[str, ...], variant: str) -> results.Record | None:
    """Return the fastest case of these libraries with this variant, or with any if no library has it."""
    theirs = [case for case in cases if case["library"] in libraries]
    same = [case for case in theirs if case["variant"] == variant]
    return min(same or theirs, key=lambda case: float(case["median"]), default=None)


def micro(case: results.Record | None) -> str:
    return f"{case['median'] * 1e6:,.4g}" if case else ""


def ratio(ours: results.Record, other: results.Record | None) -> str:
    if other is None:
        return ""
    share = ours["median"] / other["median"]
    return f"{share:.2f}" if share >= 0.01 else f"{share:.1g}"


def table(head: list[str], alignment: list[str], lines: list[str]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'|'.join(alignment)}|", *lines])


def summary() -> str:
    """Return the table of hpccoll beside the floor and the peers."""
    libraries = ["hpccoll", "memcpy (floor)", "best MPI", "Gloo", "Horovod"]
    head = ["us", *libraries, "x floor", "x best MPI", "x Gloo", "x Horovod", "to reach"]
    return table(head, ["---"] * len(head), [drawn for row in rows() if (drawn := line(row))])


def brief() -> str:
    """Return the table of hpccoll's time as a share of each peer's."""
    lines = []
    for words, row in brief_rows().items():
        if found := measured(row):
            shares = (ratio(found.ours, other) for other in (found.mpi, found.gloo, found.horovod))
            lines.append(f"| {' | '.join([words, *shares])} |".replace("  ", " "))
    return table(["hpccoll's time / the peer's", "best MPI", "Gloo", "Horovod"], ["---", *["---:"] * 3], lines)


def stemdl() -> str:
    """Return the table of a training step's milliseconds, and of its exposed communication, per way to average."""
    _, cases = results.read(results.FOLDER / "stemdl.jsonl")
    lines = []
    for (ranks, nodes, wire), group in itertools.groupby(cases, lambda c: (c["ranks"], c["nodes"], c["wire"])):
        where = f"{ranks} ranks, {nodes} node{'s' * (nodes > 1)}, {wire}"
        figures = [f"{1e3 * case[name]['median']:.1f}" for case in group for name in ("step", "exposed")]
        lines.append(f"| {' | '.join([where, *figures])} |")
    ways = ("optimizer", "DDP over hpccoll", "DDP over Gloo")
    head = ["", *(cell for way in ways for cell in (f"{way}: step", "exposed"))]
    return table(head, ["---", *["---:"] * 6], lines).replace("|  |", "| |")


def main() -> None:
    tables = {"summary": summary, "brief": brief, "stemdl": stemdl}

    def drawn(match: re.Match[str]) -> str:
        lines = [f"<!-- generated: {match[2]} -->", *tables[match[2]]().splitlines(), "<!-- end -->"]
        return "\n".join(match[1] + line for line in lines)

    for page in PAGES:
        page.write_text(SECTION.sub(drawn, page.read_text()))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Renders the report as text, in plain lines that suit a log file."""

import textwrap

from hpccoll.checks.finding import ERROR, NOTE, WARNING, Facts
from hpccoll.text import byte_size, some_ranks
from hpccoll.tools.bench.distance import SCHEDULED
from hpccoll.tools.doctor.network import duration, rate

WIDTH = 100
MOST_ROWS, MOST_NODES = 64, 4


def render(report: Facts) -> str:
    """Render a report: head, placement, network, findings from the lowest layer up, and the verdict.

    A report of hosts that do not answer has findings and a verdict only.
    """
    parts = []
    if "nodes" in report:
        parts = [_head(report), _placement(report["placement"]), _distances(report["distances"]), _network(report)]
    parts.append(_findings(report["findings"]))
    if report.get("training"):
        parts.append(_wrapped("training", report["training"]["sentence"]))
    return "\n\n".join(part for part in [*parts, _verdict(report)] if part)


def _head(report: Facts) -> str:
    ranks, nodes, what = report["ranks"], report["nodes"], report["system"]
    shown = ", ".join(f"{n['host']} ({len(n['ranks'])})" for n in nodes[:8])
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    ordered = [f"nodes ordered by {report['ordered by']}"] if report["ordered by"] else []
    software = ", ".join(f"{name} {value}" for name, value in what.items() if name not in ("hpccoll", "MPI", "UCX"))
    return "\n".join([
        f"hpccoll {report['hpccoll']} doctor: {ranks} of {report['of']} rank{'s' if report['of'] > 1 else ''} "
        f"on {len(nodes)} node{'s' if len(nodes) > 1 else ''}: {shown}{more}",
        *ordered,
        f"MPI: {what['MPI']}",
        f"UCX: {what['UCX']}",
        software,
    ])  # fmt: skip


def _placement(rows: list[Facts]) -> str:
    shown = [["rank", "host", "cpus", "cores", "NUMA", "threads", "GPUs", "rail"]]
    for row in rows[:MOST_ROWS]:
        gpus = ",".join(row["gpus"]) or ("hidden" if row["gpus on node"] else "-")
        cells = [row["rank"], row["host"], row["cpus"], row["cores"], ",".join(map(str, row["numa"])) or "-"]
        shown.append([str(cell) for cell in [*cells, row["threads"] or "unset", gpus, row["rail"] or "-"]])
    more = [f"... and {len(rows) - MOST_ROWS} more ranks"] if len(rows) > MOST_ROWS else []
    return "\n".join([*_columns(shown), *more])


def _distances(nodes: list[Facts]) -> str:
    """Write the latencies between the ranks of a node: of each pair, or of the groups of ranks that are near."""
    lines = []
    for node in nodes[:MOST_NODES]:
        lines.append(f"distances of the cores on {node['host']}: ns that a cache line takes from rank to rank")
        if node["latencies"]:
            shown = [["rank", *map(str, node["ranks"])]]
            for rank, latencies in zip(node["ranks"], node["latencies"], strict=True):
                shown.append([str(rank), *map(_nanoseconds, latencies)])
            lines += _columns(shown)
        else:
            for kind in node["classes"]:
                groups = "; ".join(some_ranks(group) for group in kind["groups"] if len(group) > 1)
                lines.append(f"{_nanoseconds(kind['seconds'])} and more: {groups}")
    more = len(nodes) - MOST_NODES
    return "\n".join([*lines, *([f"... and {more} more nodes"] if more > 0 else [])])


def _nanoseconds(seconds: float) -> str:
    return "-" if not seconds else "turns" if seconds >= SCHEDULED else f"{1e9 * seconds:.0f}"


def _network(report: Facts) -> str:
    shown = [["link", "latency", "there", "back"]]
    for link in report["links"][:MOST_ROWS]:
        there, back = map(rate, link["bandwidth"])
        shown.append([" - ".join(link["hosts"]), duration(link["latency"]), there, back])
    lines = _columns(shown) if len(shown) > 1 else []
    if len(report["links"]) > MOST_ROWS:
        lines.append(f"... and {len(report['links']) - MOST_ROWS} more links")
    if report["sent"]:
        lines.append(f"measured with {byte_size(report['sent'])}")
    for inside in (i for i in report["inside"] if "error" not in i):
        where = "over all ranks" if inside["node"] == "all" else f"inside {inside['node']}"
        where += f" as HPCCOLL_NODES={inside['as']}" if "as" in inside else ""
        late = f" (mean {duration(inside['mean'])}, worst {duration(inside['worst'])})" if "mean" in inside else ""
        lines.append(
            f"allreduce {where} ({inside['ranks']} ranks): {byte_size(inside['bytes'])} in "
            f"{duration(inside['large'])}, 8 B in {duration(inside['small'])}{late}"
        )
    return "\n".join(lines)


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _findings(findings: list[Facts]) -> str:
    return "\n".join(
        "\n".join([
            _wrapped(f"{finding['severity']}: {finding['check']}", finding["seen"]),
            _wrapped("    why", finding["matters"]),
            _wrapped("    do", finding["remedy"]),
        ])
        for finding in findings
    )  # fmt: skip


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(
        f"{label}: {text}",
        WIDTH,
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _verdict(report: Facts) -> str:
    counts = {s: sum(f["severity"] == s for f in report["findings"]) for s in (ERROR, WARNING, NOTE)}
    totals = ", ".join(f"{n} {s}{'s' if n > 1 else ''}" for s, n in counts.items() if n)
    training = report["training"]["sentence"].partition(":")[0] if report.get("training") else ""
    return (totals or "nothing wrong found") + (f"; {training[0].lower()}{training[1:]}" if training else "")

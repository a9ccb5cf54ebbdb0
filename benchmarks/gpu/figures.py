# SPDX-License-Identifier: Apache-2.0
"""The results that were promised for a GPU, computed from the measurements of run.py's steps."""

import statistics
from collections.abc import Iterator
from typing import Any

Result = dict[str, Any]
Figure = dict[str, Any]
LARGE = 64 << 20
MOST_GAPS = 1.2
"""The time that a small set of tensors may take, in times of one copy."""


def figures(steps: dict[str, Result]) -> list[Figure]:
    """Return each measured quantity, its value, and the value that it has to reach."""
    made: list[Figure] = []
    for name, step in steps.items():
        lines = step.get("results", [])
        for kind, make in MAKERS.items():
            if name.startswith(kind):
                made.extend(make(name, lines))
    return made


def figure(what: str, value: float, to_reach: str) -> Figure:
    return {"what": what, "value": value, "to reach": to_reach}


def _by(lines: list[Result], *keys: str) -> dict[tuple[Any, ...], float]:
    """Return the median of seconds, by the values of some keys."""
    return {tuple(line[key] for key in keys): statistics.median(line["seconds"]) for line in lines if "seconds" in line}


def packing(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare packing with one copy of the same bytes, and with other methods."""
    times = _by(lines, "set", "buffer", "what")
    for (tensors, buffer, what), seconds in times.items():
        case = f"float32 <-> {buffer}, {tensors}"
        copy = times.get((tensors, buffer, "one copy"))
        if what in ("pack", "unpack") and copy:
            if tensors == "gigabytes":
                yield figure(f"{what}, {case}: share of a copy's rate", copy / seconds, ">= 0.9")
            else:
                yield figure(f"{what}, {case}: times one copy", seconds / copy, f"<= {MOST_GAPS}")
        elif what != "one copy" and (ours := times.get((tensors, buffer, "pack"))):
            yield figure(f"{what}, {case}: times our pack", seconds / ours, "> 1")


def rates(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare one rank's pipeline with raw copies in both directions at once; and the cost of a small tensor."""
    times = _by(lines, "what", "bytes")
    for (what, nbytes), seconds in times.items():
        if what != "sum, finished":
            continue
        if nbytes <= 64:
            yield figure(f"{name}: us for {nbytes} bytes, from start to the end on the GPU", seconds * 1e6, "< 30")
        elif nbytes >= LARGE and name == "rates-staged":
            share = times["down and up", nbytes] / seconds
            yield figure(f"staging {nbytes >> 20} MiB: share of the link's rate", share, ">= 0.85")


def sums(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare the kernels that add up arrays with one copy that reads and writes as many bytes per array."""
    rates = {
        key: key[3] / seconds for key, seconds in _by(lines, "what", "inputs", "dtype", "bytes").items()
    }  # bytes per second
    copies = {nbytes // 2: rate for (what, _, _, nbytes), rate in rates.items() if what == "one copy"}
    for (what, inputs, dtype, nbytes), rate in rates.items():
        each = nbytes // (inputs + 1)
        if what == "sum" and each >= LARGE:
            case = f"sum of {inputs} {dtype} arrays of {each >> 20} MiB"
            yield figure(f"{case}: share of a copy's rate", rate / copies[each], ">= 0.9")


def peers(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare PyTorch's calls over hpccoll with those over its own backends."""
    times = _by(lines, "what", "bytes", "dtype", "ranks", "backend")
    for (what, nbytes, dtype, ranks, backend), seconds in times.items():
        if backend != "hpccoll":
            ours = times[what, nbytes, dtype, ranks, "hpccoll"]
            yield figure(f"{what} of {nbytes} bytes, {dtype}, {ranks} ranks: times {backend}", ours / seconds, "<= 1")


def staging(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare two ranks with the slower of the link to the GPU and MPI."""
    times = _by(lines, "what", "bytes")
    for (what, nbytes), seconds in times.items():
        if what == "allreduce":
            mpi = min(times["MPI, whole", nbytes], times["MPI, pieces", nbytes])
            slower = max(mpi, times["link", nbytes])
            yield figure(f"{name}, {nbytes >> 20} MiB over MPI: share of the slower rate", slower / seconds, ">= 0.85")


def beside(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Compare the delay of a loop of products with the unavoidable cost of the batches' bytes."""
    runs = [line for line in lines if "beside" in line]
    if runs:
        shares = [(run["beside"] - run["alone"]) / run["price"] for run in runs]
        loss = [run["beside"] / run["alone"] - 1 for run in runs]
        yield figure(f"{name}: loss of a loop of products, in prices of the bytes", statistics.median(shares), "<= 1")
        yield figure(f"{name}: the same as a share of the loop", statistics.median(loss), "")


def small(name: str, lines: list[Result]) -> Iterator[Figure]:
    """Return the time of a small array through Python, with one rank."""
    for line in lines:
        if line.get("ranks") == 1:
            case = f"{line['library']}, {line['mode']}"
            yield figure(f"{case}: us from the call to the values, 8 elements", line["seconds"][0] * 1e6, "< 30")


MAKERS = {
    "pack": packing, "rates": rates, "sums": sums, "staging": staging, "beside": beside, "peers": peers,
    "arrays": small,
}  # fmt: skip

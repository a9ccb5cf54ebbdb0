# SPDX-License-Identifier: Apache-2.0
"""Files of results, as JSON Lines: the first line describes the run, its time and its machine; then one line per case.

A file has the latest run of a question at one place (benchmarks/results/allreduce-2-ranks.jsonl).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

FOLDER = Path(__file__).resolve().parent / "results"
LOCAL = FOLDER / "local"
"""The default folder for results; git ignores it."""


def facts(question: str) -> Record:
    """Return the first line of a file."""
    date = time.strftime("%Y-%m-%d %H:%M:%S")
    return {"question": question, "command": " ".join(sys.argv), "date": date, "machine": machine()}


def machine() -> Record:
    found: Record = {"cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            found["processor"] = line.split(":", 1)[1].strip()
            break
    return found | {"load average before": os.getloadavg()[0]}


def folder(text: str) -> Path:
    """Read the name of a folder for results, which can be written: an error now loses no measurement, later it does.

    :raises ArgumentTypeError: it cannot be written
    """
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"results cannot be written into {path}: {error.strerror}") from None
    return path


def file(text: str) -> Path:
    """Read the name of a file for results, whose folder can be written; see `folder`."""
    return folder(str(Path(text).parent)) / Path(text).name


def write(path: Path, facts: Record, cases: Sequence[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in (facts, *cases)))


def read(path: Path) -> tuple[Record, list[Record]]:
    """Return the description of a run, and its cases."""
    facts, *cases = (json.loads(line) for line in path.read_text().splitlines())
    return facts, cases


def quartiles(samples: Sequence[float]) -> dict[str, float]:
    """Return lower quartile, median and upper quartile, by their names in a file."""
    if len(samples) < 2:
        return dict.fromkeys(("low", "median", "high"), samples[0])
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}

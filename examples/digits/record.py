# SPDX-License-Identifier: Apache-2.0
"""The results of a run: an HDF5 record with its provenance, and a summary of the communication in words."""

import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

import hpccoll


def write_record(
    path: Path, series: Mapping[str, object], facts: Mapping[str, object], stats: Mapping[str, int]
) -> None:
    """Write series as data sets; facts, their origin and the World's counters as attributes."""
    with h5py.File(path, "w") as file:
        for name, values in series.items():
            file[name] = np.asarray(values)
        file.attrs.update(facts)
        file.attrs.update(
            program="examples/digits/train.py",
            command=" ".join(sys.argv),
            written=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            host=platform.node(),
            python=platform.python_version(),
            numpy=np.__version__,
            hpccoll=hpccoll.__version__,
        )
        file.create_group("communication").attrs.update({name: np.uint64(value) for name, value in stats.items()})


def communication(stats: Mapping[str, int], exposed: float, steps: int) -> str:
    """Describe rank 0's counters, one line per question."""
    busy = stats["in_flight_ns"] / 1e9
    hidden = max(0.0, 1.0 - exposed / busy) if busy else 0.0
    megabytes = {name: stats[f"{name}_bytes"] / 1e6 for name in ("packed", "reduced", "spread", "net_sent")}
    inside = "{packed:.1f} MB packed, {reduced:.1f} MB reduced, {spread:.1f} MB spread".format(**megabytes)
    batches = stats["batches"]
    control = {name: stats[f"control_messages_{name}"] for name in ("local", "net")}
    return f"""\
  inside the node  {inside}
  between nodes    {megabytes["net_sent"]:.1f} MB sent in {stats["net_sent_messages"]} messages
  control          {control["local"]} messages inside the node, {control["net"]} between nodes
  batches          {batches}, {batches / steps:.1f} per step
  agreed           {stats["cached_commits"]} requests by a cached bit, {stats["first_commits"]} announced first
  time             {busy:.2f} s in flight, {hidden:.0%} hidden behind the backward pass, {exposed:.2f} s exposed"""

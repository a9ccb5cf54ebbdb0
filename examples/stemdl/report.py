# SPDX-License-Identifier: Apache-2.0
"""The report of a run: a summary in words, and an HDF5 record with its provenance."""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import torch
from meter import Meter, mean_and_error

import hpccoll

SERIES = ("input", "compute", "exposed", "step")


def summary(meter: Meter, flops: int, ranks: int) -> str:
    """Describe rank 0's step, one line per question.

    :param flops: floating-point operations of one rank's step
    """
    lines = [
        f"  {name:<8} {1e3 * mean:9.2f} +- {1e3 * error:.2f} ms a step"
        for name, (mean, error) in ((name, mean_and_error(getattr(meter, name))) for name in SERIES)
    ]
    rate, error = mean_and_error([ranks * flops / seconds / 1e9 for seconds in meter.step])
    share = sum(meter.exposed) / sum(meter.step)
    lines.append(f"  {share:.1%} of the time is exposed communication")
    lines.append(f"  {rate:.2f} +- {error:.2f} GFLOP/s, all ranks")
    return "\n".join(lines)


def write_record(
    path: Path, meter: Meter, losses: Sequence[float], options: argparse.Namespace, error: float, flops: int
) -> None:
    """Write the times of the steps as data sets; facts and their origin as attributes."""
    with h5py.File(path, "w") as file:
        file["loss"] = np.asarray(losses)
        for name in SERIES:
            file[f"seconds/{name}"] = np.asarray(getattr(meter, name))
        file.attrs.update({name: str(value) for name, value in vars(options).items()})
        file.attrs.update(
            validation_error=error,
            flops_a_step_and_rank=flops,
            program="examples/stemdl/train.py",
            command=" ".join(sys.argv),
            written=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            host=platform.node(),
            python=platform.python_version(),
            torch=str(torch.__version__),
            numpy=np.__version__,
            hpccoll=hpccoll.__version__,
        )

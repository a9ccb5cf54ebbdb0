# SPDX-License-Identifier: Apache-2.0
"""Simulated diffraction patterns in HDF5 shards: written once by all ranks, read in parts by each.

Only the seed and a sample's number determine the sample, so the shards do not depend on the ranks that write them.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from physics import Microscope, sample
from tqdm import tqdm

import hpccoll

SHARDS = 8


class Batch(NamedTuple):
    patterns: torch.Tensor  # n x detector^2 x scan x scan, mean 0 and deviation 1 in each channel
    potential: torch.Tensor  # n x 2 scan x 2 scan, in units of its deviation


def shard_path(folder: Path, kind: str, number: int) -> Path:
    return folder / f"{kind}-{number:02}-of-{SHARDS:02}.h5"


def write_shards(folder: Path, kind: str, samples: int, seed: int, rank: int, size: int) -> None:
    """Simulate the shards of this rank: rank, rank + size, ... It keeps existing shards that fit."""
    microscope = Microscope()
    facts = asdict(microscope) | {"kind": kind, "samples": samples, "seed": seed, "shards": SHARDS}
    mine = [n for n in range(rank, SHARDS, size) if not _fits(shard_path(folder, kind, n), facts)]
    numbers = {n: range(n, samples, SHARDS) for n in mine}
    folder.mkdir(parents=True, exist_ok=True)
    with tqdm(
        total=sum(map(len, numbers.values())), desc=f"simulating {kind}", unit="crystal", disable=rank != 0
    ) as bar:
        for shard, chosen in numbers.items():
            patterns, potentials = [], []
            for number in chosen:
                seen, potential = sample((seed, kind == "validation", number), microscope)
                patterns.append(seen)
                potentials.append(potential)
                bar.update()
            _write(shard_path(folder, kind, shard), np.stack(patterns), np.stack(potentials), facts)


def _fits(path: Path, facts: dict[str, object]) -> bool:
    if not path.exists():
        return False
    with h5py.File(path) as file:
        return all(file.attrs.get(name) == value for name, value in facts.items())


def _write(path: Path, patterns: NDArray, potential: NDArray, facts: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    with h5py.File(partial, "w") as file:
        file.attrs.update(facts)
        file.attrs["source"] = "simulated by examples/stemdl/physics.py (multislice, screened Coulomb columns)"
        file.attrs["numpy"], file.attrs["hpccoll"] = np.__version__, hpccoll.__version__
        for name, values, unit in (
            ("patterns", patterns, "fraction of the beam"),
            ("potential", potential, "V angstrom"),
        ):
            file[name] = values
            file[name].attrs["unit"] = unit
    os.replace(partial, path)  # a shard exists as a whole or not at all


class Samples:
    """All samples of one kind, read from the shards by number; nothing is kept in memory."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.files = [h5py.File(shard_path(folder, kind, n)) for n in range(SHARDS)]
        self.count = sum(len(file["patterns"]) for file in self.files)

    def read(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Read patterns and potentials of `numbers` (any order, each once)."""
        parts = [self._read_shard(n, np.sort(numbers[numbers % SHARDS == n]) // SHARDS) for n in range(SHARDS)]
        return np.concatenate([p for p, _ in parts]), np.concatenate([q for _, q in parts])

    def _read_shard(self, shard: int, rows: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        file = self.files[shard]
        return file["patterns"][rows], file["potential"][rows]


class Scale(NamedTuple):
    """The scale of the measured values; divided by it, they are of order one."""

    mean: NDArray[np.float32]  # per channel
    deviation: NDArray[np.float32]  # per channel
    unit: float  # deviation of the potential

    @classmethod
    def of(cls, samples: Samples, rank: int, size: int) -> "Scale":
        """Measure the scale of all samples: each rank sums up its part, hpccoll adds the sums."""
        patterns, potential = samples.read(np.arange(rank, samples.count, size))
        patterns = patterns.astype(np.float64)
        count, first, second = hpccoll.allreduce(
            [
                np.array([patterns[:, 0].size, potential.size], np.float64),
                np.stack([patterns.sum((0, 2, 3)), (patterns**2).sum((0, 2, 3))]),
                np.array([potential.sum(), (potential.astype(np.float64) ** 2).sum()]),
            ]
        )
        mean, square = first / count[0]
        unit = np.sqrt(second[1] / count[1] - (second[0] / count[1]) ** 2)
        return cls(
            np.float32(mean)[:, None, None],
            np.float32(np.sqrt(square - mean**2))[:, None, None],
            float(unit),
        )

    def apply(self, patterns: NDArray[np.float32], potential: NDArray[np.float32]) -> Batch:
        scaled = (patterns - self.mean) / self.deviation
        return Batch(torch.from_numpy(scaled), torch.from_numpy(potential / np.float32(self.unit)))


def batches(
    samples: Samples, scale: Scale, a_rank: int, rank: int, size: int, order: NDArray[np.int64]
) -> Iterator[Batch]:
    """Yield this rank's batches in `order`. The n-th batches of all ranks are the same samples for any number of ranks.

    A thread reads the next batch while the program works on the current one.
    """
    together = a_rank * size
    steps = [order[first : first + together] for first in range(0, len(order) - together + 1, together)]
    with ThreadPoolExecutor(1) as reader:
        coming = None
        for numbers in [*steps, None]:
            ready = coming
            coming = (
                None if numbers is None else reader.submit(lambda n=numbers[rank::size]: scale.apply(*samples.read(n)))
            )
            if ready is not None:
                yield ready.result()

# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits of scikit-learn as HDF5 shards: written once, read in parts.

The number of shards does not depend on the number of ranks: a global batch takes the same samples of every
shard, so 1, 2, 3 and 4 ranks (any divisor of SHARDS) train on the same batches and can be compared.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

SHARDS = 12
TRAIN_PER_SHARD = 119  # 12 x 119 = 1,428 of the 1,797 samples; the others are for testing


class Samples(NamedTuple):
    images: NDArray[np.float16]  # n x 64, grey values in 0..1
    labels: NDArray[np.int64]  # n, in 0..9


class Shard(NamedTuple):
    number: int
    train: Samples
    test: Samples


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"digits-{number:02}-of-{SHARDS}.h5"


def write_shards(folder: Path, seed: int = 0) -> None:
    """Shuffle the 1,797 samples into SHARDS files; files that exist already are kept."""
    if all(shard_path(folder, number).exists() for number in range(SHARDS)):
        return
    import sklearn  # takes longer than an epoch, and only the rank that writes the shards needs it
    from sklearn.datasets import load_digits

    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    images, labels = digits.data.astype(np.uint8), digits.target.astype(np.uint8)
    provenance = {
        "source": f"sklearn.datasets.load_digits, scikit-learn {sklearn.__version__}",
        "origin": "UCI, Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, 1998)",
        "sha256": hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
        "seed": seed,
        "shards": SHARDS,
    }
    order = np.random.default_rng(seed).permutation(len(labels))
    for number, rows in enumerate(np.array_split(order, SHARDS)):
        partial = shard_path(folder, number).with_suffix(".partial")
        with h5py.File(partial, "w") as file:
            file.attrs.update(provenance, shard=number)
            for part, chosen in (("train", rows[:TRAIN_PER_SHARD]), ("test", rows[TRAIN_PER_SHARD:])):
                file[f"{part}/images"] = images[chosen]
                file[f"{part}/images"].attrs["unit"] = "grey value, 0 to 16"
                file[f"{part}/labels"] = labels[chosen]
        os.replace(partial, shard_path(folder, number))  # a shard exists as a whole or not at all


def read_shards(folder: Path, rank: int, size: int) -> list[Shard]:
    """Read the shards of one rank: rank, rank + size, rank + 2 size, ..."""
    return [_read_shard(folder, number) for number in range(rank, SHARDS, size)]


def _read_shard(folder: Path, number: int) -> Shard:
    with h5py.File(shard_path(folder, number)) as file:
        parts = [
            Samples((file[part]["images"][:] / 16).astype(np.float16), file[part]["labels"][:].astype(np.int64))
            for part in ("train", "test")
        ]
    return Shard(number, *parts)


def batches(shards: list[Shard], per_shard: int, epoch: int, seed: int) -> Iterator[Samples]:
    """Yield one epoch of local batches: `per_shard` samples per shard, in an order set by seed, epoch and shard."""
    orders = [np.random.default_rng([seed, epoch, s.number]).permutation(TRAIN_PER_SHARD) for s in shards]
    for start in range(0, TRAIN_PER_SHARD - per_shard + 1, per_shard):
        chosen = [order[start : start + per_shard] for order in orders]
        yield Samples(
            np.concatenate([s.train.images[rows] for s, rows in zip(shards, chosen, strict=True)]),
            np.concatenate([s.train.labels[rows] for s, rows in zip(shards, chosen, strict=True)]),
        )


def steps_per_epoch(per_shard: int) -> int:
    return TRAIN_PER_SHARD // per_shard

# SPDX-License-Identifier: Apache-2.0
"""The text: bytes in an HDF5 file that each rank maps into its memory. By default the licences that Debian ships."""

import os
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import torch

LICENCES = Path("/usr/share/common-licenses")
"""Texts that are on every Debian and Ubuntu: GPL, LGPL, GFDL, MPL, Apache, Artistic, BSD, CC0. Each may be copied."""


def default_files() -> list[Path]:
    """List the licences, without the links that stand for the newest version."""
    files = sorted(path for path in LICENCES.glob("*") if not path.is_symlink())
    if not files:
        raise SystemExit(f"{LICENCES} has no texts (it is Debian's): give files with --text")
    return files


def write_tokens(path: Path, files: Sequence[Path]) -> None:
    """Write the bytes of the files, one after the other, as one contiguous dataset. One rank calls this."""
    partial = path.with_suffix(".partial")
    with h5py.File(partial, "w") as out:
        out["tokens"] = np.frombuffer(b"\n".join(file.read_bytes() for file in files), np.uint8)
        out.attrs["files"] = [str(file) for file in files]
    os.replace(partial, path)


def files_of(path: Path) -> list[Path]:
    """Return the files whose bytes a file of tokens has; none if it is not there."""
    if not path.exists():
        return []
    with h5py.File(path) as file:
        return [Path(name) for name in file.attrs["files"]]


class Tokens:
    """The tokens of a file: nine tenths to train on, the last tenth to validate on."""

    def __init__(self, path: Path, context: int) -> None:
        with h5py.File(path) as file:
            data = file["tokens"]
            tokens = np.memmap(path, data.dtype, "r", data.id.get_offset(), data.shape)
        self.context, border = context, len(tokens) * 9 // 10
        self.training, self.validation = tokens[:border], tokens[border:]
        if len(self.validation) <= context:
            raise SystemExit(f"{path} has {len(tokens)} tokens: too few for a context of {context}")

    def batch(self, key: Sequence[int], count: int, mine: slice, validation: bool = False) -> torch.Tensor:
        """Return this rank's windows of a batch, which is the same batch for any number of ranks.

        :param key: the seed of the random positions: that of the training, and the number of the step
        :param count: the windows of the whole batch
        :param mine: this rank's windows
        :returns: int64[windows, context + 1]
        """
        tokens = self.validation if validation else self.training
        begins = np.random.default_rng(key).integers(0, len(tokens) - self.context, count)[mine]
        windows = [tokens[begin : begin + self.context + 1] for begin in begins]
        return torch.from_numpy(np.stack(windows).astype(np.int64))

# SPDX-License-Identifier: Apache-2.0
"""Divides the samples of an epoch among the ranks, also when the ranks change: each sample exactly once.

Seed and epoch determine the order of the samples. The committed steps have always taken the beginning of that order, so
one number records the progress. The ranks get the remaining samples in turn; there is no padding, so some ranks may
have one sample more.
"""

from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np

from hpccoll.default_world import current, is_initialized

__all__ = ["ElasticSampler"]


class ElasticSampler:
    """Gives this rank the indices of its samples; it can be the sampler of a `torch.utils.data.DataLoader`."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """Begin with epoch 0.

        :param dataset: what has a length
        :param shuffle: whether an epoch has an order of its own
        :param seed: equal on all ranks
        """
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0
        """Samples that all ranks together have taken in this epoch."""
        self.at_end: Callable[[ElasticSampler], None] | None = None
        """The function that end_epoch() calls with this sampler."""
        self.counted = False
        """Whether the program has asked steps() since the samples were divided."""
        self._before = self._taken = self._batch = 0
        self._lengths: list[int] = []
        self.indices: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; a call with the current number changes nothing. All ranks call it.

        If the samples of the last epoch could not be divided evenly, and the sampler is part of a state, a rank without
        samples waits here for the others and takes their state (State.join).

        :param epoch: its number, from which its order is drawn
        """
        if epoch != self.epoch:
            self.end_epoch()
            self.epoch, self.processed_num = epoch, 0
        self.reset()

    def end_epoch(self) -> None:
        """Wait for the other ranks if some may make one step more in this epoch; all ranks call it.

        set_epoch() does before another epoch, and run() after the last one.
        """
        if self.at_end and is_initialized() and len(set(self._lengths)) > 1:
            self.at_end(self)

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that each rank has taken a batch; call it on all ranks after each batch, before the commit.

        :param batch_idx: for Horovod's signature; it is not used
        :param batch_size: samples of a batch of one rank; a rank that runs out of samples has taken fewer. Where
            steps() was asked, the samples that this rank has taken are as good, also 0
        """
        del batch_idx
        self._batch = max(self._batch, batch_size)
        taken = self._taken + batch_size
        if taken >= len(self):  # the last batch of this rank may be smaller than that of another rank
            taken = self._taken + self._batch
        self._taken = taken
        self.processed_num = self._before + sum(min(taken, length) for length in self._lengths)

    def steps(self, batch_size: int) -> int:
        """Count the steps that are left, on the rank with most samples: others may run out one step earlier.

        :param batch_size: samples of a batch of one rank
        """
        self.counted = True
        self._batch = max(self._batch, batch_size)  # record_batch() may never see a whole batch of this rank
        return -(-max(self._lengths) // batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state that state_dict() returned, with the present ranks."""
        self.epoch, self.processed_num = int(state_dict["epoch"]), int(state_dict["processed_num"])
        self.reset()

    def reset(self) -> None:
        """Divide the remaining samples of the epoch among the current ranks."""
        self.deal(*((current().rank, current().size) if is_initialized() else (0, 1)))

    def deal(self, rank: int, size: int) -> None:
        """Divide the remaining samples of the epoch among ranks other than those of the default World.

        :param rank: this rank
        :param size: the number of ranks
        """
        self.rank, self.num_replicas, self.counted = rank, size, False
        self._taken = self._batch = 0
        self._before = self.processed_num
        rest = self.padded(self._order()[self.processed_num :], size)
        self._lengths = [len(range(other, len(rest), size)) for other in range(size)]
        self.indices = rest[rank::size].tolist()

    @staticmethod
    def padded(samples: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
        """Return `samples` as they are; a sampler with equally many samples on each of `size` ranks adds some."""
        del size
        return samples

    def _order(self) -> np.ndarray[Any, Any]:
        count = len(self.dataset)
        return np.random.default_rng([self.seed, self.epoch]).permutation(count) if self.shuffle else np.arange(count)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the State, which the worker process of a data loader does not need."""
        return {**self.__dict__, "at_end": None}

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)

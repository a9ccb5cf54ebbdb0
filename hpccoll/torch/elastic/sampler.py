# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic.sampler: hpccoll.elastic.ElasticSampler, padded, as a sampler of PyTorch."""

from typing import Any

import numpy as np
import torch.utils.data

from hpccoll.elastic import sampler

__all__ = ["ElasticSampler"]


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """Divides an epoch among the ranks, again after each change; every rank gets as many samples.

    The first of the samples that are left are used a second time where their number is no multiple of the ranks', as in
    Horovod and in torch's DistributedSampler: programs for Horovod end an epoch with operations of all ranks, after a
    loop that must have as many steps on each. The base class, hpccoll.elastic.ElasticSampler, gives each sample once.
    """

    @staticmethod
    def padded(samples: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
        """Return `samples`, and the first of them again up to a multiple of `size`."""
        return np.resize(samples, -(-len(samples) // size) * size)

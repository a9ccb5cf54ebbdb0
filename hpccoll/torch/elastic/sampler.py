# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic.sampler: hpccoll.elastic.ElasticSampler, as a sampler of PyTorch."""

from __future__ import annotations

import torch.utils.data

from hpccoll.elastic import sampler

__all__ = ["ElasticSampler"]


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """Divides an epoch among the ranks, again after each change: each sample exactly once; see the base class."""

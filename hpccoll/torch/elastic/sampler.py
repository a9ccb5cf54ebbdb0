# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic.sampler: hpccoll.elastic.ElasticSampler, as a sampler of PyTorch."""

from __future__ import annotations

import torch.utils.data

from hpccoll.elastic import sampler

__all__ = ["ElasticSampler"]


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """Deals an epoch to the ranks, anew whenever they change: each sample once, none twice; see the base class."""

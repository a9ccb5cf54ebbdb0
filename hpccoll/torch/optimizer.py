# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.optimizer under its name."""

from hpccoll.torch.horovod import DistributedOptimizer

__all__ = ["DistributedOptimizer"]

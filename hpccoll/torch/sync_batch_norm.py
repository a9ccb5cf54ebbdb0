# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.sync_batch_norm under its name."""

from hpccoll.torch.horovod import SyncBatchNorm

__all__ = ["SyncBatchNorm"]

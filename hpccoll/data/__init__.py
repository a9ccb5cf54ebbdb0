# SPDX-License-Identifier: Apache-2.0
"""Data loaders under Horovod's names: a base class, and a mixin that reads batches ahead in a thread.

>>> from hpccoll.data import AsyncDataLoaderMixin, BaseDataLoader
"""

from hpccoll.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

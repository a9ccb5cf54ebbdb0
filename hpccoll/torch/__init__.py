# SPDX-License-Identifier: Apache-2.0
"""PyTorch: Horovod's interface, and a backend of torch.distributed.

>>> import hpccoll.torch as hvd  # in place of import horovod.torch as hvd
>>> torch.distributed.init_process_group("hpccoll")  # needs no import but torch (hpccoll_torch_backend)
"""

try:
    import torch.distributed
except ImportError as error:
    raise ImportError("hpccoll.torch needs PyTorch: pip install 'hpccoll[torch]'") from error

from typing import Any

from hpccoll.not_there import no_name as _no_name
from hpccoll.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm
from hpccoll.torch import horovod as _horovod
from hpccoll.torch.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.torch.job import init

if torch.distributed.is_available():
    from hpccoll.torch.distributed import ddp_hook as ddp_hook
    from hpccoll.torch.distributed import register

    register()

__all__ = [
    "compression", "elastic", "functions", "init", "mpi_ops", "optimizer", "sync_batch_norm",
]  # fmt: skip
__all__ += _horovod.__all__


def __getattr__(name: str) -> Any:
    """Raise an error for a missing name of Horovod, with the name to use instead."""
    raise _no_name(__name__, name)

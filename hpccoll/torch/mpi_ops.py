# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.mpi_ops under its name: the functions for tensors, init(), ranks, process sets."""

from typing import Any

from hpccoll.not_there import no_name as _no_name
from hpccoll.torch.horovod import *  # noqa: F403 - the names that hpccoll.torch has
from hpccoll.torch.horovod import __all__ as __all__
from hpccoll.torch.job import init as init


def __getattr__(name: str) -> Any:
    """Raise an error for a missing name of Horovod, with the name to use instead."""
    raise _no_name(__name__, name)

# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.mpi_ops under its name: the functions for tensors, init(), ranks, process sets."""

from hpccoll.torch.horovod import *  # noqa: F403 - the names that hpccoll.torch has
from hpccoll.torch.horovod import __all__ as __all__
from hpccoll.torch.job import init as init

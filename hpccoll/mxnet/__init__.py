# SPDX-License-Identifier: Apache-2.0
"""MXNet 1.9: Horovod's interface.

>>> import hpccoll.mxnet as hvd  # in place of import horovod.mxnet as hvd

MXNet is retired. This front end supports existing programs; no new features are planned.
"""

from typing import Any

import numpy as _numpy

if "bool" not in vars(_numpy):
    vars(_numpy)["bool"] = _numpy.bool_  # NumPy 1.24 to 1.26 lack the name, which MXNet 1.9 needs at its import
try:
    import mxnet as _mxnet  # noqa: F401
except ImportError as error:
    raise ImportError("hpccoll.mxnet needs MXNet: pip install 'mxnet>=1.9' 'numpy<2'") from error

from hpccoll import horovod as _horovod
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.mxnet import operations as _operations
from hpccoll.mxnet.operations import *  # noqa: F403 - all names of its __all__
from hpccoll.mxnet.training import DistributedOptimizer, DistributedTrainer, broadcast_parameters
from hpccoll.not_there import no_name as _no_name

__all__ = ["DistributedOptimizer", "DistributedTrainer", "broadcast_parameters"]
__all__ += _operations.__all__
__all__ += _horovod.__all__


def __getattr__(name: str) -> Any:
    """Raise an error that names the replacement of a missing name of Horovod's."""
    raise _no_name(__name__, name)

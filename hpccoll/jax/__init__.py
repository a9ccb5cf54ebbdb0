# SPDX-License-Identifier: Apache-2.0
"""JAX: collective operations inside and outside of jit, with Horovod's names, and optimizers of optax.

>>> import hpccoll.jax as hvd
>>> hvd.init()
>>> mean = jax.jit(lambda x: hvd.allreduce(x))(jnp.ones(3))
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("hpccoll.jax needs JAX: pip install 'hpccoll[jax]'") from error

from hpccoll import horovod as _horovod
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.jax.operations import (
    Compression,
    allgather,
    allreduce,
    alltoall,
    broadcast,
    exscan,
    gather,
    grouped_allreduce,
    recv,
    reduce,
    reducescatter,
    scan,
    scatter,
    send,
    sendrecv,
)
from hpccoll.jax.operations import barrier as barrier  # type: ignore[assignment] # its arguments are JAX's
from hpccoll.jax.training import DistributedOptimizer, allreduce_gradients, broadcast_parameters

__all__ = [
    "Compression", "DistributedOptimizer", "allgather", "allreduce", "allreduce_gradients", "alltoall", "barrier",
    "broadcast", "broadcast_parameters", "exscan", "gather", "grouped_allreduce", "recv", "reduce", "reducescatter",
    "scan", "scatter", "send", "sendrecv",
]  # fmt: skip
__all__ += _horovod.__all__

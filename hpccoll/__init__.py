# SPDX-License-Identifier: Apache-2.0
"""hpccoll: collective operations for the ranks of a supercomputer job.

    >>> world = hpccoll.init()
    >>> hpccoll.allreduce(np.ones(4))
    array([2., 2., 2., 2.])
    >>> hpccoll.shutdown()

The package has `init()` and `shutdown()`, the collective operations, point-to-point messages, the World and the errors.
`hpccoll.torch`, `.tensorflow`, `.keras`, `.jax` and `.mxnet` are the interfaces for frameworks, `.elastic`, `.ray` and
`.spark` start jobs that change or that others start; `hpccoll.testing` runs ranks as threads of one process.
"""

try:
    from hpccoll import _core as _core
except ImportError as _error:
    from hpccoll import unbuilt as _unbuilt

    raise _unbuilt.explain(_error) from None

from hpccoll import compression, config, errors
from hpccoll import default_world as _default_world
from hpccoll import not_there as _not_there
from hpccoll.collectives import Handle
from hpccoll.default_world import *  # noqa: F403 - all names of its __all__, as below
from hpccoll.default_world import current as world
from hpccoll.device_arrays import DeviceArray
from hpccoll.errors import *  # noqa: F403
from hpccoll.p2p import ANY_SOURCE, ANY_TAG, PROC_NULL, Status
from hpccoll.plans import Plan, start_all, wait_all
from hpccoll.reductions import (
    ADASUM,
    AVERAGE,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Reduction,
)
from hpccoll.stopping import preemption
from hpccoll.tools.launch.function import run
from hpccoll.topology import Cart, dims_create
from hpccoll.user_reductions import MAXLOC, MINLOC, UserReduction, value_index
from hpccoll.worlds import World

__version__ = _core.VERSION
_not_there.tell_imports()


def rank() -> int:
    """Give the number of this process in the default World.

    :returns: 0 to `size() - 1`
    :raises ShutDownError: there is no default World
    """
    return _default_world.place().rank


def size() -> int:
    """Give the number of ranks of the default World.

    :raises ShutDownError: there is no default World
    """
    return _default_world.place().size


def local_rank() -> int:
    """Give the number of this process among the ranks of its node.

    :returns: 0 to `local_size() - 1`
    :raises ShutDownError: there is no default World
    """
    return _default_world.place().local_rank


def local_size() -> int:
    """Give the number of ranks of the default World on this node.

    :raises ShutDownError: there is no default World
    """
    return _default_world.place().local_size


def cross_rank() -> int:
    """Return the number of this process among the ranks with its local rank; each node has at most one of them.

    :returns: 0 to `cross_size() - 1`; where all nodes have the same number of ranks, the number of the node
    :raises ShutDownError: there is no default World
    """
    return _default_world.place().cross_rank


def cross_size() -> int:
    """Give the number of ranks with the local rank of this process.

    :returns: the number of nodes, where all have the same number of ranks
    :raises ShutDownError: there is no default World
    """
    return _default_world.place().cross_size


__all__ = [
    "ADASUM", "ANY_SOURCE", "ANY_TAG", "AVERAGE", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MAXLOC", "MIN",
    "MINLOC", "PROC_NULL", "PRODUCT", "SUM", "Cart", "DeviceArray", "Handle", "Plan", "Reduction", "Status",
    "UserReduction", "World", "compression", "config", "cross_rank", "cross_size", "dims_create", "errors",
    "local_rank", "local_size", "preemption", "rank", "run", "size", "start_all", "value_index", "wait_all", "world",
]  # fmt: skip
__all__ += _default_world.__all__
__all__ += errors.__all__

_MODULES = (
    "elastic", "frontend", "io", "jax", "keras", "mxnet", "net", "observe", "ray", "rendezvous", "spark", "study",
    "tensorflow", "testing", "torch",
)  # fmt: skip
"""Public modules that are not in __all__: a program imports them if it needs them."""


def __dir__() -> list[str]:
    """List the public names, without the library's internal modules."""
    given = {*__all__, *(module for module in _MODULES if module in globals())}
    return sorted(given | {name for name in globals() if name.startswith("__")})

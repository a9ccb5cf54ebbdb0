# SPDX-License-Identifier: Apache-2.0
"""The public names of the package, which `hpccoll/__init__.py` imports at the first use of one of them."""

from hpccoll import _core, compression, config, default_world, errors
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

__all__ = [
    "ADASUM", "ANY_SOURCE", "ANY_TAG", "AVERAGE", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MAXLOC", "MIN",
    "MINLOC", "PROC_NULL", "PRODUCT", "SUM", "Cart", "DeviceArray", "Handle", "Plan", "Reduction", "Status",
    "UserReduction", "World", "compression", "config", "dims_create", "errors",
    "preemption", "run", "start_all", "value_index", "wait_all", "world",
]  # fmt: skip
__all__ += default_world.__all__
__all__ += errors.__all__

# SPDX-License-Identifier: Apache-2.0
"""The modules of Horovod that hpccoll does not have, and what to use instead.

`hpccoll.data` and its like are files of two lines: they raise what this module makes, and so does an import of
anything below them (`hpccoll.data.data_loader_base`).
"""

from __future__ import annotations

__all__ = ["INSTEAD", "missing"]

PAGE = "docs/not-there.md"

_NO_ESTIMATORS = (
    "there are no estimators for Spark: train in a function that hpccoll.spark.run() calls on all ranks, and let it "
    "read the files that Spark has written"
)
INSTEAD = {
    "hpccoll._keras": "what programs import from horovod._keras is in hpccoll.keras",
    "hpccoll.spark.torch": _NO_ESTIMATORS,
    "hpccoll.spark.keras": _NO_ESTIMATORS,
    "hpccoll.spark.lightning": _NO_ESTIMATORS,
    "hpccoll.data": "there are no data loaders: use torch.utils.data.DataLoader with a DistributedSampler",
    "hpccoll.runner": "its run() is hpccoll.run(); the launcher is the command `hpccoll run`, also as `horovodrun`",
    "hpccoll.common": (
        "what programs import from horovod.common is in hpccoll.torch: HorovodInternalError, HostsUpdatedInterrupt, "
        "ProcessSet, ..."
    ),
}
"""Each module, and the sentence for the one who imports it."""


def missing(module: str) -> ImportError:
    """Make the error for an import of a module that is not there.

    :param module: its name, a key of INSTEAD
    """
    return ImportError(f"{module} is not there: {INSTEAD[module]}. See {PAGE} of hpccoll", name=module)

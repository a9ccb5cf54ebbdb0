# SPDX-License-Identifier: Apache-2.0
"""The modules of Horovod that hpccoll does not have, and what to use instead.

`hpccoll.mxnet` and its like are files of two lines: they raise what this module makes, and so does an import of
anything below them (`hpccoll.mxnet.mpi_ops`).
"""

from __future__ import annotations

__all__ = ["INSTEAD", "missing"]

PAGE = "docs/not-there.md"

INSTEAD = {
    "hpccoll._keras": "what programs import from horovod._keras is in hpccoll.keras",
    "hpccoll.mxnet": "MXNet has been retired: there is no interface for it; train with PyTorch (hpccoll.torch)",
    "hpccoll.spark": (
        "there are no estimators and no runner for Spark: start the training with `hpccoll run` or `hpccoll submit`, "
        "and read the data that Spark has written"
    ),
    "hpccoll.ray": "there is no executor for Ray: start the job with `hpccoll run`, srun or mpirun",
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

# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.keras.elastic under its name."""

from hpccoll.keras.elastic import (
    CommitStateCallback,
    ElasticSampler,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    KerasState,
    ObjectState,
    State,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = [
    "CommitStateCallback", "ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState",
    "ObjectState", "State", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip

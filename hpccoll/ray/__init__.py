# SPDX-License-Identifier: Apache-2.0
"""Ray starts the ranks: Horovod's RayExecutor, and a backend for Ray Train.

>>> executor = hpccoll.ray.RayExecutor(num_workers=4)
>>> executor.start()
>>> results = executor.run(train, args=[0.1])
>>> executor.shutdown()

`HpccollConfig` is for Ray Train, beside its TorchConfig. The ranks meet in a store in the process that starts them,
authenticated by a secret of the job; no MPI is needed.
"""

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise ImportError("hpccoll.ray needs Ray: pip install 'hpccoll[ray]'") from error

from typing import Any

from hpccoll.ray.executor import RayExecutor
from hpccoll.ray.settings import Settings
from hpccoll.ray.worker import Worker

__all__ = ["HpccollConfig", "RayExecutor", "Settings", "Worker"]


def __getattr__(name: str) -> Any:
    """Import the names that need Ray Train at first use, because not every Ray has it."""
    if name == "HpccollConfig":
        from hpccoll.ray.train import HpccollConfig

        return HpccollConfig
    raise AttributeError(f"module 'hpccoll.ray' has no attribute {name!r}")

# SPDX-License-Identifier: Apache-2.0
"""A backend for Ray Train: its workers find each other in `hpccoll.init()`."""

from dataclasses import dataclass
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from hpccoll.ray.settings import Settings
from hpccoll.ray.worker import Where, prepare, where
from hpccoll.tools.launch.direct.job_store import JobStore, variables_at

__all__ = ["HpccollConfig"]


@dataclass
class HpccollConfig(BackendConfig):
    """The backend of a Ray Train trainer whose function calls `hpccoll.init()`, or that of a front end.

    A lost worker ends the attempt, and `FailureConfig(max_failures=)` lets Ray Train start all workers again from the
    last checkpoint. In a `TorchTrainer` it stands in place of its `TorchConfig`.

    :param timeout_s: seconds that the ranks have to meet
    :param interface: interfaces that carry data between hosts (HPCCOLL_INTERFACE); "": chosen
    """

    backend = "hpccoll"  # TorchTrainer reads it
    timeout_s: float = 300.0
    interface: str = ""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that Ray Train makes."""
        return _Backend

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that Ray Train displays."""
        return {"timeout_s": self.timeout_s, "interface": self.interface}


class _Backend(Backend):
    """Runs in the controller of Ray Train. Ray makes one object per process, and calls on_start for each attempt."""

    share_cuda_visible_devices = True
    _store: JobStore | None = None

    def on_start(self, worker_group: Any, backend_config: HpccollConfig) -> None:
        """Send the address of the rendezvous to the workers; their order is that of Ray Train's ranks."""
        self._close()
        places: list[Where] = worker_group.execute(where)
        self._store = JobStore({place.address for place in places}).open()
        shared = Settings(backend_config.timeout_s, interface=backend_config.interface).variables
        own = variables_at(self._store.text, [place.machine for place in places], "Ray Train")
        ray.get([worker_group.execute_single_async(rank, prepare, {**shared, **mine}) for rank, mine in enumerate(own)])

    def on_shutdown(self, worker_group: Any, backend_config: HpccollConfig) -> None:  # noqa: ARG002 - Ray's
        """Close the store."""
        self._close()

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

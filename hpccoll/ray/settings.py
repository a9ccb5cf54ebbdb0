# SPDX-License-Identifier: Apache-2.0
"""What a RayExecutor is made with."""

from __future__ import annotations

from dataclasses import dataclass

from hpccoll import errors

__all__ = ["Layout", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Limits of time, and the network."""

    timeout_s: float = 300.0
    """Seconds that the ranks have to meet in `hpccoll.init()` (HPCCOLL_START_TIMEOUT)."""
    placement_group_timeout_s: float = 100.0
    """Seconds for Ray to find the resources."""
    interface: str = ""
    """Interfaces between hosts (HPCCOLL_INTERFACE); "": chosen."""


@dataclass(frozen=True)
class Layout:
    """How many workers there are, where, and what each takes."""

    num_workers: int | None
    num_hosts: int | None
    num_workers_per_host: int
    cpus_per_worker: float
    gpus_per_worker: float
    use_current_placement_group: bool

    def __post_init__(self) -> None:
        if (self.num_workers is None) == (self.num_hosts is None):
            raise errors.InvalidArgumentError("RayExecutor: give num_workers, or num_hosts and num_workers_per_host")
        if min(self.num_workers or 1, self.num_hosts or 1, self.num_workers_per_host) < 1:
            raise errors.InvalidArgumentError(f"RayExecutor: needs one worker at least; {self}")

    @property
    def resources(self) -> dict[str, float]:
        """What one worker takes."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker else {}
        return {"CPU": self.cpus_per_worker, **gpus}

    @property
    def size(self) -> int:
        """The number of workers."""
        return self.num_workers or (self.num_hosts or 0) * self.num_workers_per_host

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The bundles of a placement group: one per worker, or one per host."""
        if self.num_workers:
            return [self.resources] * self.num_workers
        whole = {name: count * self.num_workers_per_host for name, count in self.resources.items()}
        return [whole] * (self.num_hosts or 0)

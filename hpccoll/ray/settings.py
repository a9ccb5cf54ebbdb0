# SPDX-License-Identifier: Apache-2.0
"""The settings of a RayExecutor."""

from dataclasses import dataclass

from hpccoll import errors

__all__ = ["ElasticLayout", "Layout", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Limits of time, and the network."""

    timeout_s: float = 300.0
    """Seconds that the ranks have to meet in `hpccoll.init()` (HPCCOLL_START_TIMEOUT)."""
    placement_group_timeout_s: float = 100.0
    """Seconds for Ray to find the resources."""
    interface: str = ""
    """Interfaces between hosts (HPCCOLL_INTERFACE); "": chosen."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the ranks for these settings."""
        interface = {"HPCCOLL_INTERFACE": self.interface} if self.interface else {}
        return {"HPCCOLL_START_TIMEOUT": f"{self.timeout_s:g}", **interface}


def _resources(cpus: float, gpus: float) -> dict[str, float]:
    return {"CPU": cpus, **({"GPU": gpus} if gpus else {})}


@dataclass(frozen=True)
class ElasticLayout:
    """The numbers of workers that an elastic job may have, and the resources of each."""

    min_workers: int
    max_workers: int | None
    cpus_per_worker: float
    gpus_per_worker: float
    reset_limit: int | None
    cooldown_range: tuple[float, float] | None
    elastic_timeout: float

    def __post_init__(self) -> None:
        if not 1 <= self.min_workers <= (self.max_workers or self.min_workers):
            raise errors.InvalidArgumentError(
                f"RayExecutor: min_workers {self.min_workers}, max_workers {self.max_workers}: needs 1 <= min <= max"
            )

    @property
    def resources(self) -> dict[str, float]:
        """The resources of one worker."""
        return _resources(self.cpus_per_worker, self.gpus_per_worker)


@dataclass(frozen=True)
class Layout:
    """The number of workers, their placement, and the resources of each."""

    num_workers: int | None
    num_hosts: int | None
    num_workers_per_host: int
    cpus_per_worker: float
    gpus_per_worker: float
    use_current_placement_group: bool

    def __post_init__(self) -> None:
        if (self.num_workers is None) == (self.num_hosts is None):
            raise errors.InvalidArgumentError("RayExecutor: give num_workers, or num_hosts, or min_workers (elastic)")
        counts = (self.num_workers, self.num_hosts, self.num_workers_per_host)
        if any(count is not None and count < 1 for count in counts):
            raise errors.InvalidArgumentError(f"RayExecutor: needs one worker at least; {self}")

    @property
    def resources(self) -> dict[str, float]:
        """The resources of one worker."""
        return _resources(self.cpus_per_worker, self.gpus_per_worker)

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

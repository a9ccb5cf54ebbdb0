# SPDX-License-Identifier: Apache-2.0
"""The workers of a RayExecutor of fixed size: actors in a placement group."""

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import exceptions
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hpccoll import errors
from hpccoll.ray.settings import Layout, Settings
from hpccoll.ray.worker import Where, Worker
from hpccoll.tools.launch.blame import Failure, error_of
from hpccoll.tools.launch.direct.job_store import JobStore, variables_at
from hpccoll.tools.launch.job import LaunchError

__all__ = ["Workers", "visible_devices"]

GRACE = 5.0
"""Seconds that the other ranks have to end by themselves when one has failed."""


class NoResourcesError(LaunchError, TimeoutError):
    """Ray has not found the resources in time; Horovod's executor raises a TimeoutError."""


class Workers:
    """The actors, in the order of their ranks."""

    def __init__(self, settings: Settings, layout: Layout, variables: Mapping[str, str]) -> None:
        """Start the actors.

        :param variables: for all of them
        :raises LaunchError: Ray has not found the resources in time
        """
        self._group, self._owns_group = _group(settings, layout)
        self._store: JobStore | None = None
        self.broken = ""
        """The reason for which calls are refused; "" before a failure."""
        try:
            self.actors = actors = _actors(layout, self._group, self._owns_group)
            places = _places(actors, settings, layout, None if self._owns_group else self._group)
            first = {place.machine: at for at, place in reversed(list(enumerate(places)))}
            order = sorted(range(len(actors)), key=lambda at: (first[places[at].machine], at))
            self.actors, self.places = [actors[at] for at in order], [places[at] for at in order]
            self._store = JobStore({place.address for place in places}).open()
            self._prepare(settings, variables)
        except BaseException:
            self.end()
            raise

    def _prepare(self, settings: Settings, variables: Mapping[str, str]) -> None:
        assert self._store is not None
        own = variables_at(self._store.text, [place.machine for place in self.places], "Ray")
        self.results(
            [
                actor.prepare.remote({**settings.variables, **visible_devices(place, self.places), **variables, **mine})
                for actor, place, mine in zip(self.actors, self.places, own, strict=True)
            ]
        )

    def call(self, method: str, *args: Any, only: int | None = None) -> list[Any]:
        """Call a method of all actors.

        :param only: call that of this rank only
        :returns: Ray's references to the results, by rank
        :raises LaunchError: a rank was lost before
        """
        if self.broken:
            raise LaunchError(f"RayExecutor: {self.broken}: call shutdown() and start() first")
        chosen = self.actors if only is None else self.actors[only : only + 1]
        return [getattr(actor, method).remote(*args) for actor in chosen]

    def make(self, cls: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Let each rank make the object that execute() hands to functions."""
        self.run("make", cls, args, kwargs)

    def run(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all actors, and wait for the results; see `call` and `results`."""
        return self.results(self.call(method, *args))

    def results(self, references: Sequence[Any]) -> list[Any]:
        """Wait for the results.

        :param references: the references of `call`, from rank 0 on
        :raises RankError: a rank raised, or was lost; the others get some seconds to end first
        """
        ranks = {reference: rank for rank, reference in enumerate(references)}
        values: dict[int, Any] = {}
        failures: list[Failure] = []
        limit = float("inf")
        while ranks and (left := limit - time.monotonic()) > 0:
            done, _ = ray.wait(list(ranks), num_returns=1, timeout=None if left == float("inf") else left)
            for reference in done:
                rank = ranks.pop(reference)
                try:
                    values[rank] = ray.get(reference)
                except Exception as error:  # noqa: BLE001 - Ray reraises any exception of the function
                    failures.append(self._failure(rank, error))
                    limit = min(limit, time.monotonic() + GRACE)
        if failures:
            first = error_of(failures)
            if first.lost:
                self.broken = str(first)
            elif ranks:
                self.broken = f"rank {first.rank} has raised, and rank {min(ranks.values())} has not ended since"
            raise first
        return [values[rank] for rank in sorted(values)]

    def _failure(self, rank: int, error: Exception) -> Failure:
        place = str(self.places[rank])
        if isinstance(error, exceptions.RayTaskError):
            cause = getattr(error, "cause", None)
            return Failure(rank, place, str(error), cause if isinstance(cause, BaseException) else error)
        if isinstance(error, exceptions.RayActorError | exceptions.WorkerCrashedError | exceptions.NodeDiedError):
            return Failure(rank, place, _reason(error), error, lost=True)
        return Failure(rank, place, "".join(traceback.format_exception(error)), error)

    def end(self) -> None:
        """Kill the actors, and give the resources back."""
        for actor in getattr(self, "actors", ()):
            ray.kill(actor)
        if self._store is not None:
            self._store.close()
        if self._owns_group:
            remove_placement_group(self._group)
        self.actors = []


def visible_devices(place: Where, places: Sequence[Where]) -> dict[str, str]:
    """Let a worker see the GPUs of all workers of its machine, so that its local rank is the number of its GPU."""
    mine = [device for other in places if other.machine == place.machine for device in other.devices]
    return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(mine))} if mine else {}


def _reason(error: Exception) -> str:
    """Ray's reason for the end of an actor, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines) or type(error).__name__


def _group(settings: Settings, layout: Layout) -> tuple[PlacementGroup, bool]:
    """The placement group of the workers, and whether it was made here."""
    current = ray.util.get_current_placement_group() if layout.use_current_placement_group else None
    if current is not None and layout.num_workers:
        needs = {name: count for name, count in layout.resources.items() if count}
        bundles = current.bundle_specs
        fits = (min((one.get(name, 0) // count for name, count in needs.items()), default=math.inf) for one in bundles)
        if sum(fits) < layout.num_workers:
            raise errors.InvalidArgumentError(
                f"RayExecutor: the current placement group has the bundles {bundles}, and num_workers is "
                f"{layout.num_workers} ({needs} each); give use_current_placement_group=False for one of its own"
            )
        return current, False
    group = placement_group(layout.bundles, strategy="PACK" if layout.num_workers else "STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=settings.placement_group_timeout_s)
    except exceptions.GetTimeoutError:
        remove_placement_group(group)
        raise NoResourcesError(
            f"RayExecutor: Ray has not found the resources of {layout.size} workers ({layout.resources} each) within "
            f"{settings.placement_group_timeout_s:g} s (placement_group_timeout_s); the cluster has "
            f"{ray.cluster_resources()}, free are {ray.available_resources()}"
        ) from None
    return group, True


def _actors(layout: Layout, group: PlacementGroup, owned: bool) -> list[Any]:
    """Start the actors. In a group of the program's own they take any bundle: a trial of Ray Tune is in the first."""
    per_bundle = 1 if layout.num_workers else layout.num_workers_per_host
    remote: Callable[..., Any] = ray.remote(Worker).options
    return [
        remote(
            num_cpus=layout.cpus_per_worker,
            num_gpus=layout.gpus_per_worker,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=at // per_bundle if owned else -1
            ),
        ).remote()
        for at in range(layout.size)
    ]


def _places(actors: Sequence[Any], settings: Settings, layout: Layout, current: PlacementGroup | None) -> list[Where]:
    """Wait for the actors, and ask where they are.

    :param current: the program's own placement group, in which something else may occupy the resources
    :raises LaunchError: it does
    """
    references = [actor.where.remote() for actor in actors]
    try:
        return list(ray.get(references, timeout=settings.placement_group_timeout_s if current else None))
    except exceptions.GetTimeoutError:
        assert current is not None
        raise LaunchError(
            f"RayExecutor: the current placement group has not had {layout.size} times {layout.resources} free within "
            f"{settings.placement_group_timeout_s:g} s (placement_group_timeout_s); its bundles are "
            f"{current.bundle_specs}, and a trial of Ray Tune itself is in the first one"
        ) from None

# SPDX-License-Identifier: Apache-2.0
"""RayExecutor: Ray starts the ranks, and functions are called on all of them; Horovod's interface."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpccoll import errors
from hpccoll.ray.elastic_job import ElasticWorkers
from hpccoll.ray.settings import ElasticLayout, Layout, Settings
from hpccoll.ray.workers import Workers
from hpccoll.tools.launch.function import checked_variables
from hpccoll.tools.launch.job import LaunchError

__all__ = ["RayExecutor"]


class RayExecutor:
    """Ranks in actors of Ray, from `start()` to `shutdown()`.

    The functions call `hpccoll.init()`, or that of a front end, themselves. The number of ranks does not change. If one
    is lost, or does not end after another one raised, the call raises, and `shutdown()` and `start()` begin anew.

    With `min_workers` each `run()` and `execute()` is an elastic job, for functions that use `hpccoll.elastic.run` or
    `hvd.elastic.run`: it goes on when ranks or nodes are lost, and takes new ones in.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 300.0,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100.0,
        nics: str | Sequence[str] | None = None,
    ) -> Settings:
        """Make settings.

        :param timeout_s: seconds that the ranks have to meet in `init()`
        :param ssh_identity_file: not needed: nothing goes over ssh
        :param ssh_str: not needed
        :param placement_group_timeout_s: seconds for Ray to find the resources
        :param nics: interfaces that carry data between hosts; None: chosen
        """
        del ssh_identity_file, ssh_str
        interface = nics or ""
        return Settings(
            timeout_s, placement_group_timeout_s, interface if isinstance(interface, str) else ",".join(interface)
        )

    def __init__(
        self,
        settings: Settings | None = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[float, float] | None = None,
        elastic_timeout: float = 600.0,
    ) -> None:
        """Describe the job; `start()` starts it.

        :param settings: see `create_settings`
        :param num_workers: ranks, on as few hosts as possible
        :param num_hosts: in place of `num_workers`: hosts, with `num_workers_per_host` ranks each
        :param num_workers_per_host: see `num_hosts`
        :param cpus_per_worker: cores that Ray counts for a rank
        :param use_gpu: give GPUs to the ranks: each sees those of all ranks of its machine, and the one of its local
            rank is its own
        :param gpus_per_worker: how many, with `use_gpu`; None: 1
        :param use_current_placement_group: take bundle i of the placement group in which this process runs, if there
            is one, for rank i
        :param min_workers: in place of `num_workers`: the job is elastic, and goes on while there are so many ranks
        :param max_workers: take ranks in up to so many; None: what Ray's nodes take
        :param reset_limit: how often the ranks may change; None: any number of times
        :param cooldown_range: seconds that a node whose ranks fail again and again is excluded at first, and at most
        :param elastic_timeout: seconds to wait for `min_workers`
        :raises InvalidArgumentError: the numbers make no sense
        """
        if gpus_per_worker and not use_gpu:
            raise errors.InvalidArgumentError(f"RayExecutor: gpus_per_worker is {gpus_per_worker}, use_gpu is False")
        gpus = (1 if gpus_per_worker is None else gpus_per_worker) if use_gpu else 0
        if max_workers is not None and min_workers is None:
            raise errors.InvalidArgumentError(
                f"RayExecutor: max_workers is {max_workers}, and an elastic job needs min_workers as well"
            )
        self._settings = settings or self.create_settings()
        self._layout: Layout | ElasticLayout
        if min_workers is None:
            self._layout = Layout(
                num_workers, num_hosts, num_workers_per_host, cpus_per_worker, gpus, use_current_placement_group
            )
        elif num_workers is not None or num_hosts is not None:
            raise errors.InvalidArgumentError("RayExecutor: give min_workers, or num_workers, or num_hosts")
        else:
            self._layout = ElasticLayout(
                min_workers, max_workers, cpus_per_worker, gpus, reset_limit, cooldown_range, elastic_timeout
            )
        self._workers: Workers | ElasticWorkers | None = None

    @property
    def num_workers(self) -> int:
        """The number of ranks; of an elastic job the fewest."""
        return self._layout.size if isinstance(self._layout, Layout) else self._layout.min_workers

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str | float] | None = None,
    ) -> None:
        """Start the ranks.

        :param executable_cls: each rank makes an object of this class, which `execute` hands to its functions
        :param executable_args: its arguments
        :param executable_kwargs: its arguments by keyword
        :param extra_env_vars: variables to set in the ranks; a number becomes its text
        :raises LaunchError: Ray has not found the resources in time (a TimeoutError, too), or the ranks run already
        :raises RankError: the class raised on a rank
        :raises InvalidArgumentError: (a ValueError) `extra_env_vars` has what is no variable
        """
        if self._workers is not None:
            raise LaunchError("RayExecutor: it has been started; call shutdown() before start()")
        given: Any = extra_env_vars
        if isinstance(given, Mapping):  # Horovod's executor takes numbers
            given = {name: str(value) if isinstance(value, int | float) else value for name, value in given.items()}
        variables = checked_variables("RayExecutor.start: extra_env_vars", given)
        if isinstance(self._layout, Layout):
            self._workers = Workers(self._settings, self._layout, variables)
        else:
            self._workers = ElasticWorkers(self._settings, self._layout, variables)
        if executable_cls is not None:
            self._workers.make(executable_cls, executable_args or (), executable_kwargs or {})

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a function on all ranks, and wait for its results.

        :param fn: called as `fn(*args, **kwargs)`
        :param args: its arguments, the same on all ranks
        :param kwargs: its arguments by keyword
        :returns: what it returned, by rank
        :raises RankError: it raised on a rank, or a rank was lost; names the rank that failed first
        :raises LaunchError: the executor was not started, a rank was lost before, or an elastic job cannot go on
        """
        return self._started().run("run", fn, args or (), kwargs or {})

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a function on all ranks, and do not wait.

        :param fn: called as `fn(*args, **kwargs)`
        :param args: its arguments, the same on all ranks
        :param kwargs: its arguments by keyword
        :returns: Ray's references to the results, by rank, for `ray.get`, which raises Ray's own errors
        :raises LaunchError: the executor was not started, a rank was lost before, or an elastic job cannot go on
        """
        return self._fixed("run_remote").call("run", fn, args or (), kwargs or {})

    def execute(self, fn: Callable[[Any], Any]) -> list[Any]:
        """Call a function on all ranks, with the object that `start` has made there, and wait for its results.

        :param fn: called as `fn(executable)`
        :returns: what it returned, by rank
        :raises RankError: see `run`
        :raises LaunchError: see `run`
        """
        return self._started().run("execute", fn)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Call a function on rank 0 alone, with the object that `start` has made there.

        :param fn: called as `fn(executable)`
        :returns: what it returned
        :raises RankError: see `run`
        :raises LaunchError: see `run`
        """
        workers = self._fixed("execute_single")
        return workers.results(workers.call("execute", fn, only=0))[0]

    def shutdown(self) -> None:
        """End the ranks, and give their resources back to Ray. A second call does nothing."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.end()

    def _fixed(self, method: str) -> Workers:
        workers = self._started()
        if isinstance(workers, ElasticWorkers):
            raise errors.UnsupportedError(f"RayExecutor.{method}: the ranks of an elastic job come and go: use run()")
        return workers

    def _started(self) -> Workers | ElasticWorkers:
        if self._workers is None:
            raise LaunchError("RayExecutor: call start() first")
        return self._workers

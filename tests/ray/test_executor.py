# SPDX-License-Identifier: Apache-2.0
"""RayExecutor on a real cluster."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hpccoll

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]
TWO_NODES = {"HPCCOLL_NODES": "2"}  # ranks of one machine act as two: data goes over UCX


def mean(value: float) -> tuple[int, int, float]:
    world = hpccoll.init()
    total = hpccoll.allreduce(np.full(1000, value + world.rank), hpccoll.AVERAGE)
    return world.rank, world.size, float(total[0])


def raises_on_rank_1() -> None:
    hpccoll.init()
    hpccoll.allreduce(np.ones(1))
    if hpccoll.rank() == 1:
        raise ValueError("learning rate")
    hpccoll.allreduce(np.ones(1))


def killed_on_rank_2() -> None:
    hpccoll.init()
    hpccoll.allreduce(np.ones(1))
    if hpccoll.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    hpccoll.allreduce(np.ones(1))


class Trainer:
    def __init__(self, rate: float, momentum: float = 0.0) -> None:
        self.rate, self.momentum = rate, momentum
        hpccoll.init()

    def step(self) -> float:
        return float(hpccoll.allreduce(np.array([self.rate * hpccoll.rank()]))[0])


@pytest.fixture
def executor(cluster: Any) -> Iterator[Callable[..., Any]]:
    """`executor(num_workers=4, env={})`: a started one."""
    from hpccoll.ray import RayExecutor

    made = []

    def make(env: dict[str, str] | None = None, **arguments: Any) -> Any:
        made.append(RayExecutor(RayExecutor.create_settings(timeout_s=120), **arguments))
        made[-1].start(extra_env_vars=env)
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def test_a_function_runs_on_all_ranks(executor: Callable[..., Any]) -> None:
    import ray

    four = executor(TWO_NODES, num_workers=4)
    assert four.run(mean, args=[1.0]) == [(rank, 4, 2.5) for rank in range(4)]
    assert four.run(mean, kwargs={"value": 2.0}) == [(rank, 4, 3.5) for rank in range(4)]  # the same World
    assert ray.get(four.run_remote(mean, args=[0.0])) == [(rank, 4, 1.5) for rank in range(4)]


def test_ranks_on_each_host_as_asked(executor: Callable[..., Any]) -> None:
    import ray

    spread = executor(num_hosts=4, num_workers_per_host=1)
    assert len(set(spread.run(lambda: ray.get_runtime_context().get_node_id()))) == 4
    assert spread.num_workers == 4


def test_an_object_lives_in_each_rank(cluster: Any) -> None:
    from hpccoll.ray import RayExecutor

    executor = RayExecutor(num_workers=2)
    executor.start(executable_cls=Trainer, executable_args=[0.5], executable_kwargs={"momentum": 0.9})
    try:
        assert executor.execute(lambda trainer: trainer.step()) == [0.5, 0.5]
        assert executor.execute_single(lambda trainer: (trainer.momentum, hpccoll.rank())) == (0.9, 0)
    finally:
        executor.shutdown()


def test_a_rank_sees_the_gpus_of_its_machine(executor: Callable[..., Any]) -> None:
    """Ray's nodes have GPU 0 each; they are pretended, and on one machine."""
    seen = executor(num_workers=4, use_gpu=True).run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["0"] * 4


def test_an_exception_names_its_rank_and_the_ranks_live_on(executor: Callable[..., Any]) -> None:
    two = executor(num_workers=2)
    with pytest.raises(hpccoll.RankError, match="learning rate") as raised:
        two.run(raises_on_rank_1)
    assert (raised.value.rank, raised.value.lost) == (1, False)


def test_a_killed_rank_is_named_and_start_begins_anew(executor: Callable[..., Any]) -> None:
    from hpccoll.tools.launch.job import LaunchError

    four = executor(TWO_NODES, num_workers=4)
    began = time.monotonic()
    with pytest.raises(hpccoll.RankError, match=r"rank 2 \(host .* was lost") as raised:
        four.run(killed_on_rank_2)
    assert (raised.value.rank, raised.value.lost) == (2, True)
    assert time.monotonic() - began < 120
    with pytest.raises(LaunchError, match="rank 2"):
        four.run(mean, args=[1.0])
    four.shutdown()
    four.start(extra_env_vars=TWO_NODES)
    assert four.run(mean, args=[1.0]) == [(rank, 4, 2.5) for rank in range(4)]


def test_variables_may_be_numbers(cluster: Any) -> None:
    from hpccoll.ray import RayExecutor

    executor = RayExecutor(num_workers=1)
    executor.start(extra_env_vars={"OMP_NUM_THREADS": 1, "RATE": 0.5, "NAME": "x"})
    try:
        assert executor.run(lambda: [os.environ[name] for name in ("OMP_NUM_THREADS", "RATE", "NAME")]) == [
            ["1", "0.5", "x"]
        ]
    finally:
        executor.shutdown()


def test_resources_that_are_not_there(cluster: Any) -> None:
    from hpccoll.ray import RayExecutor
    from hpccoll.tools.launch.job import LaunchError

    executor = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=2), num_workers=100)
    with pytest.raises(LaunchError, match=r"100 workers.*the cluster has") as raised:
        executor.start()
    assert isinstance(raised.value, TimeoutError)  # as with Horovod


def test_arguments_that_make_no_sense(cluster: Any) -> None:
    from hpccoll.ray import RayExecutor

    fixed_and_elastic = {"num_workers": 2, "max_workers": 4}, {"num_workers": 2, "min_workers": 2}
    for arguments in ({}, {"num_workers": 2, "num_hosts": 2}, {"num_workers": 0}, *fixed_and_elastic):
        with pytest.raises(hpccoll.InvalidArgumentError):
            RayExecutor(**arguments)

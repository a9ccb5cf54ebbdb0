# SPDX-License-Identifier: Apache-2.0
"""An elastic RayExecutor on a real cluster: a rank is killed, and the others go on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]
STEPS = 30


def steps(folder: str) -> tuple[int, int, float]:
    """Adds one per step and rank; the highest rank is killed in step 5 of the first generation."""
    import numpy as np

    import hpccoll
    from hpccoll import elastic

    state = elastic.ArrayState(total=np.zeros(1), step=0)

    @elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            flag = Path(folder, "killed")
            if state.step == 5 and hpccoll.rank() == hpccoll.size() - 1 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            state.total += hpccoll.allreduce(np.ones(1), hpccoll.AVERAGE, name="step")
            state.step += 1
            state.commit()

    train(state)
    return hpccoll.rank(), state.step, float(state.total[0])


def ends_on_rank_1(status: int) -> int:
    """Rank 1 ends in the training, which the others have not finished."""
    import sys

    import numpy as np

    import hpccoll
    from hpccoll import elastic

    @elastic.run
    def train(state: Any) -> None:
        hpccoll.allreduce(state.total)
        if hpccoll.rank() == 1:
            sys.exit(status)

    train(elastic.ArrayState(total=np.zeros(1)))
    return hpccoll.rank()


def test_the_others_go_on(cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from hpccoll.ray import RayExecutor

    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), min_workers=2, max_workers=3)
    executor.start()
    results = executor.run(steps, args=[str(tmp_path)])
    assert (tmp_path / "killed").exists()
    assert len(results) in (2, 3)
    assert results == [(rank, STEPS, float(STEPS)) for rank in range(len(results))]
    assert "was lost" in capfd.readouterr().err
    executor.shutdown()


@pytest.mark.parametrize("status", [0, 3])
def test_a_rank_that_ends_itself_is_no_result(cluster: Any, capfd: pytest.CaptureFixture[str], status: int) -> None:
    """Its result was None."""
    from hpccoll.ray import RayExecutor
    from hpccoll.tools.launch.job import LaunchError

    limits = {"min_workers": 3, "max_workers": 3, "elastic_timeout": 60, "reset_limit": 1}
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), **limits)
    executor.start()
    why = "the job has ended" if status else "rank 1 has ended with status 0 before the function returned"
    with pytest.raises(LaunchError, match=why):
        executor.run(ends_on_rank_1, args=[status])
    assert ("was lost: RuntimeError: the function has called sys.exit(3)" in capfd.readouterr().err) == bool(status)
    executor.shutdown()

# SPDX-License-Identifier: Apache-2.0
"""A plan that was started before a fork: the child gets an error, and the parent its result."""

import pytest
from test_jobs import INIT, job

pytestmark = pytest.mark.timeout(180)
SCRIPT = (
    INIT
    + """
plan = hpccoll.allreduce_init(np.ones(COUNT))
if rank == 0:
    plan.start()
    child = os.fork()
    if child == 0:
        meet("begun", 2)
        try:
            plan.wait()
        except hpccoll.ForkedError:
            os._exit(0)
        os._exit(1)
    meet("forked", 1)
    assert os.waitpid(child, 0)[1] == 0
else:
    meet("forked", 2)
    plan.start()
    meet("begun", 1)
for _ in range(3):
    assert (plan.wait() == 2).all()
    plan.start()
assert (plan.wait() == 2).all()
hpccoll.shutdown()
"""
)


@pytest.mark.parametrize("count", [3, 30_000])
@pytest.mark.parametrize("level", ["multiple", "single"])
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_the_child_of_a_fork_leaves_a_started_plan_to_its_parent(count: int, level: str, nodes: str) -> None:
    """The child took the partner's values, or drove, from the memory that all ranks share."""
    script = f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\n" + SCRIPT.replace("COUNT", str(count))
    status, output = job(2, script, nodes=nodes, stall_limit=20)
    assert status == 0, output

# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs: a training or a simulation goes on in the same processes when ranks are lost or come.

>>> import hpccoll.elastic
>>> state = hpccoll.elastic.ArrayState(weights=np.zeros(3), step=0)
>>> @hpccoll.elastic.run
... def train(state):
...     while state.step < 3:
...         state.weights += hpccoll.allreduce(np.ones(3), hpccoll.AVERAGE, name="gradient")
...         state.step += 1
...         state.commit()
...     return state.weights
>>> train(state)
array([3., 3., 3.])

`hpccoll run --min-np 1 -np 2 python train.py` starts an elastic job; under any other launcher the same program runs
with the ranks that it has. `hpccoll.torch.elastic` has the same for PyTorch, under Horovod's names. docs/elastic.md has
the guarantees.

    loop.py         run(): from a loss to the next step
    state.py        the state: commit, restore, transfer to new ranks
    values.py       its values: names, copies
    commit_file.py  commits in files, for the next run of the job
    sampler.py      divides the samples among the ranks
"""

from hpccoll.elastic.interrupt import HostsUpdatedInterrupt
from hpccoll.elastic.loop import run
from hpccoll.elastic.sampler import ElasticSampler
from hpccoll.elastic.state import ArrayState, ObjectState, State
from hpccoll.errors import RecoverableError as HorovodInternalError

__all__ = [
    "ArrayState",
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "run",
]

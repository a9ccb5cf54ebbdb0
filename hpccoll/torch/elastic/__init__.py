# SPDX-License-Identifier: Apache-2.0
"""Elastic training with PyTorch, under Horovod's names: `hvd.elastic.run`, `TorchState`, `ElasticSampler`.

docs/elastic.md has the guarantees; hpccoll.elastic has the code.
"""

from hpccoll.elastic import HostsUpdatedInterrupt, ObjectState, State
from hpccoll.elastic.loop import runner
from hpccoll.errors import RecoverableError as HorovodInternalError
from hpccoll.horovod import shutdown
from hpccoll.torch.elastic import sampler, state
from hpccoll.torch.elastic.sampler import ElasticSampler
from hpccoll.torch.elastic.state import TorchState
from hpccoll.torch.job import init

__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
    "sampler",
    "state",
]

run = runner(init, shutdown)
"""Make a training function elastic, see hpccoll.elastic.run."""

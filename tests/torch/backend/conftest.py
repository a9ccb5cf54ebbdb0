# SPDX-License-Identifier: Apache-2.0
"""One process group for all tests of a job: making it is what every user does, once."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import hpccoll.torch.backend


@pytest.fixture(scope="session")
def whole() -> Iterator[dist.ProcessGroup]:
    """The default process group over all ranks of the job."""
    torch.set_num_threads(1)
    dist.init_process_group(hpccoll.torch.backend.NAME)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def group(whole: dist.ProcessGroup) -> dist.ProcessGroup:
    torch.manual_seed(1)
    return whole

# SPDX-License-Identifier: Apache-2.0
"""One default process group for the tests of a file: torch has one a process, and other rooms make theirs."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import hpccoll.torch.backend


@pytest.fixture(scope="module")
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

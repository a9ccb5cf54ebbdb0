# SPDX-License-Identifier: Apache-2.0
"""A job of `hpccoll.jax` that lasts for one file."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # the second device must be refused
pytest.importorskip("jax", reason="needs jax: pip install 'hpccoll[jax]'")

import hpccoll.jax as hvd


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()

# SPDX-License-Identifier: Apache-2.0
"""A job of `hpccoll.jax` that lasts for one file."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # the second device must be refused
if importlib.util.find_spec("jax") is None:  # its import would take seconds in runs without tests of this folder
    pytest.skip("needs jax: pip install 'hpccoll[jax]'", allow_module_level=True)


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    import hpccoll.jax as hvd

    hvd.init()
    yield
    hvd.shutdown()

# SPDX-License-Identifier: Apache-2.0
"""The C sources that the programs of this folder are compiled with."""

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def library(sources_of: Callable[..., list[str]]) -> list[str]:
    """The engine, the transports except MPI, and the loop."""
    return sources_of("core", "transport", "loop")

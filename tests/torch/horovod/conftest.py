# SPDX-License-Identifier: Apache-2.0
"""A job of `hpccoll.torch` that lasts for one file, and the process sets that this rank is in."""

from collections.abc import Iterator

import pytest

import hpccoll.torch as hvd


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="module", params=["all ranks", "parity", "rank 0"])
def ranks(request: pytest.FixtureRequest, job: None) -> Iterator[hvd.ProcessSet]:
    """Three kinds of sets: all ranks; those of this rank's parity; rank 0 alone, and all others."""
    if request.param == "all ranks" or hvd.size() == 1:
        yield hvd.global_process_set
        return
    groups = (
        [range(parity, hvd.size(), 2) for parity in (0, 1)]
        if request.param == "parity"
        else [[0], range(1, hvd.size())]
    )
    sets = [hvd.add_process_set(group) for group in groups]
    yield next(one for one in sets if one.included())
    for one in sets:
        hvd.remove_process_set(one)

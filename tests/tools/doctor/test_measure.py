# SPDX-License-Identifier: Apache-2.0
"""The doctor's measurements of collective operations, on a machine whose load changes meanwhile."""

import time

from mpi4py import MPI

from hpccoll.tools.doctor import measure


def test_an_operation_that_becomes_slow_is_measured_for_about_a_second() -> None:
    calls = 0

    def operation() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:  # those before are the first ones that are measured
            time.sleep(0.02)

    median, mean, worst = measure._times(MPI.COMM_SELF, operation, measure.MANY)
    assert 0.02 <= median <= worst and 0.02 <= mean <= worst
    assert calls < 200  # as fast as the first ones, there would be time for all 20,000


def test_a_fast_operation_is_measured_as_often_as_asked() -> None:
    calls = []
    measure._times(MPI.COMM_SELF, lambda: calls.append(None), measure.FEW)
    assert len(calls) == 3 + measure.FEW

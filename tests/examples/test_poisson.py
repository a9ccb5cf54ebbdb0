# SPDX-License-Identifier: Apache-2.0
"""The solver on hpccoll agrees with the one on mpi4py, and with itself to the last bit in deterministic mode."""

import pytest


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [
        (1, 1),
        (3, 2),
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
    ],
)
def test_poisson(job, ranks: int, nodes: int) -> None:
    output = job(ranks, "examples/poisson/solve.py", "--points", "64", HPCCOLL_NODES=nodes, HPCCOLL_DETERMINISTIC=1)
    assert f"64^2 points, {ranks} ranks" in output
    assert "the same bits" in output
    assert "times as long as mpi4py" in output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_bits_do_not_depend_on_fusion(job) -> None:
    """Two jobs, two fusion thresholds: the checksums of the solutions are equal."""
    outputs = [
        job(4, "examples/poisson/solve.py", "--points", "32", "--checksum",
            HPCCOLL_NODES=2, HPCCOLL_DETERMINISTIC=1, HPCCOLL_FUSION_THRESHOLD=threshold)
        for threshold in (4096, 1 << 26)
    ]  # fmt: skip
    sums = [next(line for line in output.splitlines() if "checksum" in line) for output in outputs]
    assert sums[0] == sums[1]

# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of the samples of several ranks, against NumPy on all of them with more bits."""

import numpy as np
import pytest

from hpccoll.frontend.moments import moments_of, summands


def combined(parts, k):
    counts = [len(part) for part in parts]
    each = [summands(len(x), x.mean(0), x.var(0), k) for x in (np.asarray(part, np.float64) for part in parts)]
    sums, squares = (sum(column) for column in zip(*each, strict=True))
    return moments_of(sum(counts), sums, squares, k)


@pytest.mark.parametrize(
    ("dtype", "offset", "near"),
    [(np.float16, 100, 0), (np.float32, 1e3, 0), (np.float32, 1e5, 0), (np.float64, 1e10, 1)],
)
def test_moments(dtype, offset, near):
    samples = (np.random.default_rng(0).standard_normal((60, 3)) + offset).astype(dtype)
    k = near * (samples[0].astype(np.float64) + 0.5)
    mean, variance = combined([samples[:10], samples[10:13], samples[13:]], k)
    exact = samples.astype(np.longdouble)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=1e-14)
    np.testing.assert_allclose(variance, exact.var(0), rtol=1e-5)

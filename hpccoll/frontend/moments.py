# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of the samples of all ranks, of which each may have another number.

Each rank reduces its n samples to their mean m and variance v, the mean of the squared deviations from m. With any k
that all ranks have, sums over the ranks, in float64, give those of all N samples:

    N = sum n,    N (mean - k) = sum n (m - k),    N variance = sum n (v + (m - k)^2) - N (mean - k)^2

What cancels there is (mean - k)^2. With k = 0 that costs less than the rounding of the samples themselves has cost, if
they have 32 bits or fewer. For samples of float64 the ranks need a k near the mean, which takes one more reduction.

Source: T. Chan, G. Golub, R. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
1979. The arrays here are those of NumPy, or of a framework.
"""

from __future__ import annotations

from typing import Any

__all__ = ["moments_of", "summands"]


def summands(count: Any, mean: Any, variance: Any, k: Any) -> tuple[Any, Any]:
    """Return what is to be summed over the ranks, beside the count.

    :param count: samples of this rank; without samples mean and variance are any numbers
    :param mean: of each channel, float64; `variance` likewise, not corrected
    :param k: the same on all ranks: near the mean of all samples, or 0
    """
    off = mean - k
    return count * off, count * (variance + off * off)


def moments_of(count: Any, sums: Any, squares: Any, k: Any) -> tuple[Any, Any]:
    """Return mean and variance of all samples; rounding may make a variance of 0 negative.

    :param count: the sum over the ranks; `sums` and `squares` likewise, of what summands() has returned
    """
    off = sums / count
    return k + off, squares / count - off * off

# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of the samples of all ranks, whose numbers of samples may differ.

Each rank computes the mean m of its n samples and their variance v, the mean of the squared deviations from m. For any
common k, sums over the ranks, in float64, give the mean and variance of all N samples:

    N = sum n,    N (mean - k) = sum n (m - k),    N variance = sum n (v + (m - k)^2) - N (mean - k)^2

The term (mean - k)^2 cancels. With k = 0 the error is smaller than the rounding of the samples, if they have 32 bits or
fewer. For float64 the ranks need a k near the mean, which takes one more reduction.

Source: T. Chan, G. Golub, R. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
1979. The arrays here are those of NumPy, or of a framework.
"""

from typing import Any

__all__ = ["moments_of", "summands"]


def summands(count: Any, mean: Any, variance: Any, k: Any) -> tuple[Any, Any]:
    """Return the values to sum over the ranks, beside the count.

    :param count: samples of this rank; without samples mean and variance are any numbers
    :param mean: of each channel, float64; `variance` likewise, not corrected
    :param k: the same on all ranks: near the mean of all samples, or 0
    """
    off = mean - k
    return count * off, count * (variance + off * off)


def moments_of(count: Any, sums: Any, squares: Any, k: Any) -> tuple[Any, Any]:
    """Return mean and variance of all samples; rounding may make a variance of 0 negative.

    :param count: the sum over the ranks; `sums` and `squares`: the sums of the results of summands()
    """
    off = sums / count
    return k + off, squares / count - off * off

# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of the samples of all ranks, of which each may have another number.

Each rank reduces its n samples to mean m and variance v; the sums over the ranks are formed in float64:

    N = sum n,    N mean = sum n m,    N variance = sum n (v + m^2) - N mean^2

Source: T. Chan, G. Golub, R. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
1979. The arrays here are anything that computes and slices as NumPy does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["moments_of", "put_summands"]


def put_summands(out: Any, n: int, mean: Any, variance: Any) -> None:
    """Fill what is to be summed over the ranks.

    :param out: float64 zeros of shape (2 * channels + 1,)
    :param n: samples of this rank, at least 1; without samples `out` stays zero
    :param mean: of each channel; `variance` likewise, not corrected
    """
    out[0] = n
    squares, sums = out[1:].reshape(2, -1)
    sums[:] = mean
    squares[:] = variance
    squares += sums * sums
    out[1:] *= n


def moments_of(total: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return number, mean and variance of all samples: float64 of shapes (), (channels,), (channels,).

    :param total: the sum over the ranks of what put_summands() has filled
    :param shape: of this rank's batch, for the error
    :raises ValueError: there are less than two samples
    """
    count = total[0]
    if count < 2:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {shape} here and "
            f"{int(count)} on all ranks"
        )
    squares, mean = (total[1:] / count).reshape(2, -1)
    return count, mean, (squares - mean * mean).clip(0)

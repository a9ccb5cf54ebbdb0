# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the samples of all ranks, of which each may have another number.

Each rank reduces its n samples to mean m and variance v; sums over the ranks are formed in float64:

    N = sum n,    N mean = sum n m,    N variance = sum n (v + m^2) - N mean^2

Source: T. Chan, G. Golub, R. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
1979.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from hpccoll.horovod.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.horovod.reductions import Sum
from hpccoll.torch.horovod import requests

__all__ = ["SyncBatchNorm"]

Tensor = torch.Tensor


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d, 2d or 3d whose mean and variance are those of the process set's samples.

    As in torch.nn.SyncBatchNorm, the gradients of weight and bias are this rank's: DistributedOptimizer reduces them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalise `input`: (samples, num_features, ...). Every rank of the set calls it, if in training."""
        self._check_input_dim(input)
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if (not self.training and self.track_running_stats) or world_of(self.process_set).size == 1:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias,
                self.training or not self.track_running_stats, self._share_of_this_batch(), self.eps,
            )  # fmt: skip
        normalise: Any = _Normalise.apply
        result, mean, variance, count = normalise(input, self.weight, self.bias, self.eps, self.process_set)
        if tracks:
            self._track(mean, variance * count / (count - 1))
        return cast("Tensor", result)

    def _share_of_this_batch(self) -> float:
        """Of the running statistics: momentum, or with None as much as each batch before had."""
        if self.momentum is not None:
            return self.momentum
        return 1.0 / max(int(self.num_batches_tracked), 1) if self.num_batches_tracked is not None else 0.0

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        share = self._share_of_this_batch()
        with torch.no_grad():
            for running, now in ((self.running_mean, mean), (self.running_var, variance)):
                if running is not None:
                    running.lerp_(now.to(running.dtype), share)


class _Normalise(torch.autograd.Function):
    """Returns the result, and mean (float64), variance (of the whole batch) and number of the samples of a channel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = _wide(x)
        count, mean, variance = _statistics(wide, process_set)
        scale = torch.rsqrt(variance + eps)
        ctx.process_set, ctx.dtype = process_set, x.dtype
        ctx.save_for_backward(x, weight, mean, scale, count)
        factor = scale if weight is None else scale * weight
        shift = -mean * factor if bias is None else bias - mean * factor
        result = torch.addcmul(_by_channel(shift, wide), wide, _by_channel(factor, wide))
        ctx.mark_non_differentiable(mean, variance, count)
        return result.to(x.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, count = ctx.saved_tensors
        wide, dy = _wide(x), _wide(gradient)
        deviation = wide - _by_channel(mean, wide)
        dims = _all_but_channels(dy)
        sums = torch.stack([dy.sum(dims), (dy * deviation).sum(dims)]).double()
        of_weight = (
            (sums[1] * scale).to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        )
        of_bias = sums[0].to(weight.dtype) if weight is not None and ctx.needs_input_grad[2] else None
        of_input = None
        if ctx.needs_input_grad[0]:
            means = _summed("backward", sums, ctx.process_set) / count
            slope = scale if weight is None else scale * weight
            dy = dy - _by_channel(means[0], dy) - deviation * _by_channel(means[1] * scale * scale, dy)
            of_input = (dy * _by_channel(slope, dy)).to(ctx.dtype)
        return of_input, of_weight, of_bias, None, None


def _statistics(x: Tensor, process_set: ProcessSet) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean and variance of the samples of each channel on all ranks: float64 of shapes (), (C,), (C,)."""
    own = torch.zeros(2 * x.size(1) + 1, dtype=torch.float64, device=x.device)
    n = x.numel() // max(x.size(1), 1)
    if n:
        variance, mean = torch.var_mean(x, _all_but_channels(x), correction=0)
        own[0] = n
        squares, sums = own[1:].view(2, -1)
        sums[:] = mean
        squares[:] = variance
        squares += sums * sums
        own[1:] *= n
    total = _summed("forward", own, process_set)
    count = total[0]
    if count < 2:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {tuple(x.size())} here and "
            f"{int(count)} on all ranks"
        )
    squares, mean = (total[1:] / count).view(2, -1)
    return count, mean, (squares - mean * mean).clamp_(min=0)


def _summed(what: str, x: Tensor, process_set: ProcessSet) -> Tensor:
    """The sum of `x` over the ranks."""
    name = f"sync_batch_norm.{what}"
    total: Tensor = requests.allreduce(
        name, [x], Sum, 1.0, 1.0, process_set, group=False, in_place=False, waits=True
    ).wait()
    return total


def _wide(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    """`values`, one a channel, in the dtype of `x` and to be combined with it."""
    return values.to(x.dtype).view(1, -1, *[1] * (x.dim() - 2))

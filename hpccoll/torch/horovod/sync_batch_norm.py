# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the samples of all ranks; hpccoll.frontend.moments has the sums."""

from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from hpccoll.frontend.moments import moments_of, summands
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.frontend.reductions import Sum
from hpccoll.frontend.requests import Requests
from hpccoll.torch.adapter import ADAPTER

__all__ = ["SyncBatchNorm"]

Tensor = torch.Tensor

_requests = Requests(ADAPTER)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d, 2d or 3d with the mean and variance of all samples of the process set.

    As in torch.nn.SyncBatchNorm, the gradients of weight and bias are this rank's; DistributedOptimizer reduces them.
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
        """Make a layer as BatchNorm1d, 2d or 3d does.

        :param process_set: the ranks over whose samples it normalises; the other arguments are torch's
        """
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalise a batch. In training, every rank of the process set calls this.

        :param input: (samples, num_features, ...); ranks may have different numbers of samples, also none
        :returns: a tensor like `input`
        :raises ValueError: all ranks together have less than two samples per channel
        """
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
        """Return the weight of this batch in the running statistics: the momentum, or if that is None 1 / batches."""
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
    """Return the normalised batch, and the mean, variance and number of all samples per channel (float64)."""

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
        # x * factor - mean * factor would cancel where the mean is large beside the deviations
        deviation = wide - _by_channel(mean, wide)
        result = deviation.mul_(_by_channel(factor, wide))
        if bias is not None:
            result.add_(_by_channel(bias, wide))
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
        of_weight = (sums[1] * scale).to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        of_bias = sums[0].to(weight.dtype) if weight is not None and ctx.needs_input_grad[2] else None
        of_input = None
        if ctx.needs_input_grad[0]:
            means = _summed("backward", sums, ctx.process_set) / count
            slope = scale if weight is None else scale * weight
            dy = dy - _by_channel(means[0], dy) - deviation * _by_channel(means[1] * scale * scale, dy)
            of_input = (dy * _by_channel(slope, dy)).to(ctx.dtype)
        return of_input, of_weight, of_bias, None, None


def _statistics(x: Tensor, process_set: ProcessSet) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, mean and variance of all ranks' samples per channel: float64 of shapes (), (C,), (C,)."""
    n = x.numel() // max(x.size(1), 1)
    variance, mean = x.new_zeros((2, x.size(1)), dtype=torch.float64)
    if n:
        variance, mean = (y.double() for y in torch.var_mean(x, _all_but_channels(x), correction=0))
    own = mean.new_tensor([n])
    k: Tensor | float = 0.0
    if x.dtype == torch.float64:
        total = _summed("mean", torch.cat([own, n * mean]), process_set)
        k = total[1:] / total[0].clamp(min=1)
    total = _summed("forward", torch.cat([own, *summands(n, mean, variance, k)]), process_set)
    if total[0] < 2:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {tuple(x.size())} here and "
            f"{int(total[0])} on all ranks"
        )
    sums, squares = total[1:].chunk(2)
    mean, variance = moments_of(total[0], sums, squares, k)
    return total[0], mean, variance.clamp(min=0)


def _summed(what: str, x: Tensor, process_set: ProcessSet) -> Tensor:
    """Return the sum of `x` over the ranks."""
    total: Tensor = _requests.allreduce(
        f"sync_batch_norm.{what}", [x], Sum, 1.0, 1.0, process_set, group=False, in_place=False, waits=True
    ).wait()
    return total


def _wide(x: Tensor) -> Tensor:
    """Return `x` in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    """Return `values`, one per channel, in the dtype of `x` and in a shape that broadcasts with it."""
    return values.to(x.dtype).view(1, -1, *[1] * (x.dim() - 2))

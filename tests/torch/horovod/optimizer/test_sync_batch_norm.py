# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm on each rank's samples against torch's BatchNorm on all of them."""

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = pytest.mark.mpi

CHANNELS = 3


def samples(world, shape, dtype, offset):
    """All ranks' samples and the place of this rank's: rank r has r + 1, on every second shape the last has none."""
    generator = torch.Generator().manual_seed(3)
    rows = [rank + 1 for rank in range(world.size)]
    if len(shape) == 1 and world.size > 1:
        rows[-1] = 0
    x = torch.randn(sum(rows), CHANNELS, *shape, generator=generator, dtype=torch.float64) + offset
    first = sum(rows[: world.rank])
    return x.to(dtype), slice(first, first + rows[world.rank])


def pair_of_norms(dims, dtype, **options):
    kind = (torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)[dims]
    torch.manual_seed(5)
    alone, synced = kind(CHANNELS, **options).to(dtype), hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
    if alone.affine:
        torch.nn.init.normal_(alone.weight)
        torch.nn.init.normal_(alone.bias)
    synced.load_state_dict(alone.state_dict())
    return alone, synced


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4,), {}),
        ((3, 5), {"momentum": None}),
        ((2, 2, 3), {"affine": False}),
        ((3, 5), {"track_running_stats": False}),
        ((4,), {"eps": 0.1, "momentum": 0.7}),
    ],
    ids=str,
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
def test_same_as_on_the_whole_batch(world, options, shape, dtype, tolerance):
    alone, synced = pair_of_norms(len(shape), dtype, **options)
    close = {"rtol": tolerance, "atol": tolerance}
    for step in range(3):
        x, own = samples(world, shape, dtype, offset=step)
        weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(step), dtype=dtype)
        whole, part = x.clone().requires_grad_(), x[own].clone().requires_grad_()
        out, out_part = alone(whole), synced(part)
        torch.testing.assert_close(out_part, out[own], **close)
        (out * weights).sum().backward()
        (out_part * weights[own]).sum().backward()
        torch.testing.assert_close(part.grad, whole.grad[own], **close)
    for name, parameter in synced.named_parameters():
        total = hvd.allreduce(parameter.grad, op=hvd.Sum)
        torch.testing.assert_close(
            total, dict(alone.named_parameters())[name].grad, rtol=tolerance, atol=10 * tolerance
        )
    for name, value in synced.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name], **close)
    alone.eval()
    synced.eval()
    torch.testing.assert_close(synced(x[own]), alone(x)[own], **close)


def test_half_precision_is_normalised_in_float32(world):
    alone, synced = pair_of_norms(2, torch.float32)
    x, own = samples(world, (3, 5), torch.bfloat16, offset=0)
    part = x[own].clone().requires_grad_()
    result = synced(part)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), alone(x.float())[own], rtol=0.01, atol=0.02)
    result.sum().backward()
    assert part.grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("dtype", "offset", "tolerance"),
    [(torch.float16, 100, 1e-5), (torch.float32, 1e3, 1e-5), (torch.float64, 1e8, 1e-6)],
)
def test_a_variance_beside_a_large_mean(world, dtype, offset, tolerance):
    """The statistics are those of NumPy, in float64, on all samples."""
    synced = hvd.SyncBatchNorm(CHANNELS, momentum=1.0).to(torch.float64 if dtype == torch.float64 else torch.float32)
    x, own = samples(world, (3, 5), dtype, offset)
    synced(x[own])
    exact = x.double().transpose(0, 1).reshape(CHANNELS, -1).numpy()
    assert synced.running_mean.numpy() == pytest.approx(exact.mean(1), rel=tolerance)
    assert synced.running_var.numpy() == pytest.approx(exact.var(1, ddof=1), rel=tolerance)


@pytest.mark.mpi(min_size=2)
def test_a_channel_without_deviations_is_its_bias(world):
    """(x - mean) is 0, whatever the mean is; x * scale - mean * scale is 0.006 here.

    On one rank it is PyTorch's own layer.
    """
    synced = hvd.SyncBatchNorm(CHANNELS)
    synced.bias.data.copy_(torch.arange(CHANNELS))
    result = synced(torch.full((world.rank + 1, CHANNELS), 1005.3))
    assert torch.equal(result, synced.bias.expand_as(result))


@pytest.mark.mpi(min_size=3)
def test_in_a_process_set(world):
    pair = hvd.add_process_set([0, world.size - 1])
    if pair.included():
        alone, synced = pair_of_norms(1, torch.float64, affine=False)
        synced.process_set = pair
        x = torch.randn(2, 4, CHANNELS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        torch.testing.assert_close(synced(x[pair.rank()]), alone(x.flatten(0, 1))[4 * pair.rank() :][:4])
    hvd.remove_process_set(pair)


def test_one_value_is_no_batch(world):
    x = torch.ones(1 if world.rank == 0 else 0, CHANNELS)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        hvd.SyncBatchNorm(CHANNELS)(x)
    with pytest.raises(ValueError, match="at least 2D"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(3))

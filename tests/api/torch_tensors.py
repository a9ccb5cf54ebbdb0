# SPDX-License-Identifier: Apache-2.0
"""Run by test_arrays.py in an environment that has PyTorch (benchmarks/peers.sh makes one)."""

import torch

import hpccoll

with hpccoll.World(verbose=0) as world:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool):
        x = torch.ones(5, dtype=dtype)
        got = hpccoll.allreduce(x, world=world)
        assert isinstance(got, torch.Tensor)
        assert got.dtype == dtype
        assert torch.equal(got, x)
        assert torch.equal(hpccoll.allreduce(x[::2], world=world), x[::2])
    weight = torch.ones(3, requires_grad=True)
    assert hpccoll.allreduce(weight, out=weight, prescale=2.0, world=world) is weight
    assert weight.tolist() == [2, 2, 2]
    received, rows = hpccoll.alltoall(torch.arange(4), world=world)
    assert received.tolist() == [0, 1, 2, 3]
    assert rows.tolist() == [4]
print("fine")
